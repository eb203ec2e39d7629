// Apple's GPU, through libtorch's MPS backend. It compiles by shape and never evicts: executables bound the shapes that
// reach it, and EmptyCaches forgets what it compiled. All of it goes through at::detail::getMPSHooks(), so that this
// compiles, and is tested against other hooks, where there is no such GPU.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/device.h"
#include "device/backend.h"
#include "device/staging.h"

namespace permafrost::device {

// Returns whether this machine has an MPS device and this libtorch was built for it.
bool HasMps();
// Call it only if HasMps(). Errors: FailedPrecondition for an environment that libtorch would refuse later.
absl::StatusOr<std::unique_ptr<Backend>> MakeMpsBackend(const BackendOptions& options);

// The environment variables that libtorch's MPS backend reads, checked before it does: it reads most of them when it is
// loaded or at its first allocation, and tells of a bad one in the middle of a job.
struct MpsEnvironment {
  std::vector<DeviceSetting> settings;  // those that are set, and the watermarks as they hold
  std::vector<std::string> warnings;    // one line each
};

// Value of an environment variable; nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Errors: FailedPrecondition, one line, for a value that libtorch would refuse or misread. PYTORCH_ENABLE_MPS_FALLBACK
// is warned of: steps would run on the CPU in part, unseen. Threads: a pure function.
absl::StatusOr<MpsEnvironment> ReadMpsEnvironment(const Environment& environment);

// Objective-C objects that Metal makes on its way are released when the pool around them ends; a thread without one
// keeps them all. Nothing happens elsewhere than on Apple's systems.
// Threads: made and destroyed on one thread, innermost first.
class AutoreleasePool {
 public:
  AutoreleasePool();
  AutoreleasePool(const AutoreleasePool&) = delete;
  ~AutoreleasePool();
  // Pools that are open on this thread.
  static int depth();

 private:
  void* const pool_;
};

// The executable of a backend without recordings: the program itself, run at one shape. Nothing is recorded and nothing
// is proven; the cache's policy then bounds the shapes that reach the device, and with them what a backend that
// compiles by shape keeps.
// Threads: the device thread.
class ShapedCapturer final : public Capturer {
 public:
  // `device`: where steps run.
  explicit ShapedCapturer(c10::Device device) : staging_(device) {}

  // Runs nothing.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override;
  // Refuses: one program for every shape would bound nothing.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override;
  std::vector<at::Tensor> RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  absl::Status WarmUp(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return 0; }

 private:
  Staging staging_;
};

}  // namespace permafrost::device
