// The executable of a backend without recordings: the program itself, run at one shape. Nothing is recorded and nothing
// is proven; the cache's policy then bounds the shapes that reach the device, and with them what a backend that
// compiles by shape keeps.
// Threads: the device thread.
#pragma once

#include "device/backend.h"

namespace permafrost::device {

class ShapedCapturer final : public Capturer {
 public:
  // Runs nothing.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override;
  // Refuses: one program for every shape would bound nothing.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override;
  absl::Status WarmUp(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return 0; }
};

}  // namespace permafrost::device
