// Executables that are graphs of the device: a whole step, captured while it ran on a stream of its own and replayed by
// one call, on inputs copied into the buffers that it was captured with. Written against libtorch's accelerator graphs
// (ATen/core/GraphImplInterface.h), of which CUDA has an implementation, so that it compiles without CUDA.
// Threads: the device thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <memory>

#include "device/backend.h"

namespace permafrost::device {

class GraphCapturer final : public Capturer {
 public:
  // `device`: one that has a graph implementation (at::has_graph_impl).
  explicit GraphCapturer(c10::Device device) : device_(device) {}

  // A step is recorded first, which finds what cannot be captured, by operator; then it warms up on a stream of its
  // own, is captured there, and proven: a replay of `second` leaves what the step leaves, to float tolerance, since
  // sums by atomic operations differ from run to run. All graphs of a capturer share one pool of memory, so that
  // replays run one after the other and each invalidates what the one before returned. Errors: as Capturer; what the
  // device itself refuses is a graph break without an operator.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override;
  // Refuses: a graph is of one shape.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override;
  // Not known: the allocator of the device has the pool.
  int64_t shared_bytes() const override { return 0; }

 private:
  const c10::Device device_;
  c10::MempoolId_t pool_{0, 0};  // of the first graph; until then none
};

}  // namespace permafrost::device
