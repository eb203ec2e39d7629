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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "device/backend.h"
#include "device/cuda/cuda_libraries.h"
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

// Everything that a GraphCapturer asks a device for.
struct GraphDevice {
  c10::Device device;
  std::function<std::unique_ptr<DeviceGraph>()> make_graph;
  // The id of a pool that no graph has used yet. A pool ends with its last graph, and libtorch refuses its id then.
  std::function<c10::MempoolId_t()> new_pool;
  // Gives free blocks of the allocator back to the driver.
  std::function<void()> empty_cache;
  StagingOptions staging;
};

// The proof of a captured step on a device whose sums differ in rounding from run to run, since atomic operations add
// in any order. The step runs twice from one state, which shows how far rounding moves each tensor; then it is
// replayed.
//
// A replay passes where every tensor of the state is within
//   kProofRelative * the step's largest change of it + kProofNoise * how far the two runs are apart
//   + kProofFloor * the largest change in its group + two roundings of its type
// of the first run, element by element. An output has no value before the step, so its largest absolute value takes the
// place of both changes. An operator left out, a stale input or a stale host number is found where it moves a tensor by
// more than a thousandth of what a step does. Integers and other types must have equal values.
// Threads: the device thread; waits for the device.
inline constexpr double kProofRelative = 1e-3, kProofNoise = 8, kProofFloor = 1e-5;

// Copies on the host of a program's state and of what it returned.
struct HostValues {
  std::vector<at::Tensor> state, outputs;
};
HostValues ValuesOf(const StepProgram& program, const std::vector<at::Tensor>& outputs);

// The first tensor, "weight" or "output 0", by which `replay` is no run of the step; nullopt: there is none. All four
// have tensors in the same places: `start` before the step (its outputs are not read), `run` and `again` after it.
std::optional<std::string> FindDifference(const std::vector<StateTensor>& state, const HostValues& start,
                                          const HostValues& run, const HostValues& again, const HostValues& replay);

class GraphCapturer final : public Capturer {
 public:
  explicit GraphCapturer(GraphDevice device)
      : device_(std::move(device)), pool_(device_.new_pool), staging_(device_.device, device_.staging) {}

  // A step is recorded first, which finds what cannot be captured, by operator; then it warms up on a stream of its
  // own, is captured there, and proven on `second` to rounding (FindDifference). Between warm-up and capture the
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
