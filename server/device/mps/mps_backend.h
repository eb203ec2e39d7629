// Apple's GPU, through libtorch's MPS backend. The backend compiles by shape and never evicts. Executables bound the
// shapes that reach the backend, and EmptyCaches drops everything that it compiled. All calls go through
// at::detail::getMPSHooks(). So this code compiles on machines without such a GPU, and is tested there with other
// hooks.
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

// The environment variables that libtorch's MPS backend reads. They are checked before libtorch reads them. libtorch
// reads most of them when it is loaded or at its first allocation. It would report a bad value in the middle of a
// job.
struct MpsEnvironment {
  std::vector<DeviceSetting> settings;  // the variables that are set, and the watermarks in effect
  std::vector<std::string> warnings;    // one line each
};

// Returns the value of an environment variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Reads and checks the environment. Errors: FailedPrecondition, one line, for a value that libtorch would refuse or
// misread. Warns of PYTORCH_ENABLE_MPS_FALLBACK, with which parts of steps would silently run on the CPU. Threads: a
// pure function.
absl::StatusOr<MpsEnvironment> ReadMpsEnvironment(const Environment& environment);

// A pool for the Objective-C objects that Metal makes. The objects are released when the pool around them ends. A
// thread without a pool keeps all its objects. On systems other than Apple's, a pool does nothing.
// Threads: made and destroyed on one thread, innermost first.
class AutoreleasePool {
 public:
  AutoreleasePool();
  AutoreleasePool(const AutoreleasePool&) = delete;
  ~AutoreleasePool();
  // Returns the number of pools that are open on this thread.
  static int depth();

 private:
  void* const pool_;
};

// Makes executables for a backend without recordings. An executable is the program itself, run at one shape. Nothing
// is recorded or proven. The cache's policy then bounds the shapes that reach the device, and so what a backend that
// compiles by shape keeps.
// Threads: the device thread.
class ShapedCapturer final : public Capturer {
 public:
  // Steps run on `device`.
  explicit ShapedCapturer(c10::Device device) : staging_(device) {}

  // Returns an executable without running the program.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override;
  // Returns an error: one program for every shape would bound nothing.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override;
  std::vector<at::Tensor> RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  absl::Status WarmUp(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return 0; }

 private:
  Staging staging_;
};

}  // namespace permafrost::device
