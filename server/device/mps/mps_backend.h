// Apple's GPU, through libtorch's MPS backend. It compiles by shape and never evicts: executables bound the shapes that
// reach it, and EmptyCaches forgets what it compiled. All of it goes through at::detail::getMPSHooks(), so that this
// compiles, and is tested against other hooks, where there is no such GPU.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "device/backend.h"
#include "device/staging.h"

namespace permafrost::device {

// Returns whether this machine has an MPS device and this libtorch was built for it.
bool HasMps();
// Call it only if HasMps(). Errors: FailedPrecondition for an environment that libtorch would refuse later.
absl::StatusOr<std::unique_ptr<Backend>> MakeMpsBackend(const BackendOptions& options);

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
