// Apple's GPU, through libtorch's MPS backend. libtorch compiles a graph for each shape and never evicts one.
// Therefore the graph cache limits the shapes that reach libtorch, and EmptyCaches drops everything that libtorch
// compiled. All calls go through at::detail::getMPSHooks(). So this code compiles on machines without such a GPU, and
// is tested there with other hooks.
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

// Returns true if this machine has an MPS device and this libtorch was built for it.
bool HasMps();
// Call it only if HasMps(). Errors: FailedPrecondition if libtorch would later refuse an environment variable.
absl::StatusOr<std::unique_ptr<Backend>> MakeMpsBackend(const BackendOptions& options);

// The environment variables that libtorch's MPS backend reads. The daemon checks them at its start. libtorch itself
// reads most of them when it is loaded or at its first allocation. It would then report a bad value in the middle of a
// job.
struct MpsEnvironment {
  std::vector<DeviceSetting> settings;  // each variable that is set, and both watermarks in effect
  std::vector<std::string> warnings;    // one line each
};

// Returns the value of an environment variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Reads and checks the environment. Errors: FailedPrecondition, in one line, if libtorch would refuse or misread a
// value. Warns of PYTORCH_ENABLE_MPS_FALLBACK, because it lets parts of steps run on the CPU unnoticed. Threads: a
// pure function.
absl::StatusOr<MpsEnvironment> ReadMpsEnvironment(const Environment& environment);

// A pool for the Objective-C objects that Metal makes. When the pool is destroyed, it releases the objects made since
// it was opened. Without a pool, a thread never releases them. On systems other than Apple's, a pool does nothing.
// Threads: a pool is made and destroyed on one thread. The pool that was made last is destroyed first.
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

// Makes executables for a backend without recordings. An executable runs the program itself, at one shape. Nothing is
// recorded or proven. The graph cache's policy thus limits the shapes that reach the device, and with them what a
// backend that compiles by shape keeps.
// Threads: the device thread.
class ShapedCapturer final : public Capturer {
 public:
  // Steps run on `device`.
  explicit ShapedCapturer(c10::Device device) : staging_(device) {}

  // Returns an executable without running the program.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override;
  // Returns an error, since one executable for every shape would not limit the shapes.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override;
  std::vector<at::Tensor> RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  absl::Status WarmUp(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return 0; }

 private:
  Staging staging_;
};

}  // namespace permafrost::device
