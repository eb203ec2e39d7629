// Executables that are graphs of the device: a whole step, captured while it ran on a stream of its own and replayed by
// one call. A batch is copied into the one buffer that the graph reads its inputs from; tensors that lie on the device
// for every batch of a job are read where they are. It sees the device through a GraphDevice, so that it compiles and
// is tested without CUDA. Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "device/backend.h"
#include "device/cuda/device_graph.h"
#include "device/staging.h"
#include "device/step_program.h"

namespace permafrost::device {

// The memory that all live graphs of a capturer share: replays run one after the other. Invariant: an id that is handed
// out never belongs to a pool whose last graph is gone.
class GraphPool {
 public:
  explicit GraphPool(std::function<c10::MempoolId_t()> make) : make_(std::move(make)) {}
  // The pool of the live graphs, or a new one where there are none. It is of use while a copy of the pointer lives.
  std::shared_ptr<const c10::MempoolId_t> Current();
  // Graphs made from now on get another pool.
  void Abandon() { current_.reset(); }

 private:
  const std::function<c10::MempoolId_t()> make_;
  std::weak_ptr<const c10::MempoolId_t> current_;
};

class GraphCapturer final : public Capturer {
 public:
  explicit GraphCapturer(GraphDevice device)
      : device_(std::move(device)), pool_(device_.new_pool), staging_(device_.device, device_.staging) {}

  // A step is recorded first, which finds what cannot be captured, by operator; then it warms up on a stream of its
  // own, is captured there, and proven on `second` to rounding (replay_proof.h). Between warm-up and capture the
  // allocator's free blocks go back to the driver: a capture can take memory from nowhere else, and may not free any.
  // All graphs of a capturer share one pool of memory, so that replays run one after the other and each invalidates
  // what the one before returned. Errors: as Capturer; what the device itself refuses is a graph break without an
  // operator. Its errors pass through where they are none of the step (fault.h: IsOutOfMemory, IsFatalToDevice).
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override;
  // Refuses: a graph is of one shape.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override;
  std::vector<at::Tensor> RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  // The number is not known, because the allocator of the device has the pool.
  int64_t shared_bytes() const override { return 0; }

 private:
  const GraphDevice device_;
  GraphPool pool_;
  Staging staging_;
  // The stream on which captures run; made once, as each stream has a workspace of the math library.
  std::optional<c10::Stream> side_;
};

}  // namespace permafrost::device
