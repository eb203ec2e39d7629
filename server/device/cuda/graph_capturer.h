// Executables that are graphs of the device. A whole step is captured while it runs on a separate stream, and one
// call replays it. Each batch is copied into one buffer, from which the graph reads its inputs. Resident tensors
// (step_program.h) are not copied. The capturer uses the device through a GraphDevice, so it compiles and is tested
// without CUDA.
// Threads: the device thread.
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

// The memory pool that all live graphs of a capturer share. Sharing is safe, since replays run one after the other.
// Invariant: Current never returns the id of a pool whose last graph is gone.
class GraphPool {
 public:
  explicit GraphPool(std::function<c10::MempoolId_t()> make) : make_(std::move(make)) {}
  // Returns the pool of the live graphs, or a new pool if there is no live graph. The pool is usable while a copy of
  // the pointer lives.
  std::shared_ptr<const c10::MempoolId_t> Current();
  // Makes later graphs get another pool.
  void Abandon() { current_.reset(); }

 private:
  const std::function<c10::MempoolId_t()> make_;
  std::weak_ptr<const c10::MempoolId_t> current_;
};

// The functions of a device that a GraphCapturer calls.
struct GraphDevice {
  c10::Device device;
  std::function<std::unique_ptr<DeviceGraph>()> make_graph;
  // Returns the id of a pool that no graph has used yet. A pool ends with its last graph. After that, libtorch
  // refuses its id.
  std::function<c10::MempoolId_t()> new_pool;
  // Gives free blocks of the allocator back to the driver.
  std::function<void()> empty_cache;
  StagingOptions staging;
};

// The proof of a captured step to rounding. On the device, sums differ by rounding from run to run, since atomic
// operations add in any order. The step therefore runs twice from one state, to measure how much rounding changes
// each tensor. Then the graph is replayed from the same state.
//
// A replay passes if every element of every tensor of the state differs from that of the first run by at most
//   kProofRelative * the largest change that the step made to the tensor
//   + kProofNoise * the largest difference between the two runs
//   + kProofFloor * the largest change in the tensor's group
//   + two roundings of the tensor's type.
// An output has no value before the step. In its bound, its largest absolute value therefore replaces both of the
// largest changes. The proof detects an omitted operator, a stale input or a stale host number. It detects such an
// error if the error changes a tensor by more than a thousandth of the step's own change. Integers and other types
// must have equal values.
// Threads: the device thread; waits for the device.
inline constexpr double kProofRelative = 1e-3, kProofNoise = 8, kProofFloor = 1e-5;

// Host copies of a program's state and outputs.
struct HostValues {
  std::vector<at::Tensor> state, outputs;
};
HostValues ValuesOf(const StepProgram& program, const std::vector<at::Tensor>& outputs);

// Returns the name of the first tensor, such as "weight" or "output 0", whose value in `replay` fails the test above.
// Returns nullopt if all pass. All four HostValues have their tensors in the same order. `start` is from before the
// step, and its outputs are not read. `run` and `again` are from after the two runs of the step.
std::optional<std::string> FindDifference(const std::vector<StateTensor>& state, const HostValues& start,
                                          const HostValues& run, const HostValues& again, const HostValues& replay);

class GraphCapturer final : public Capturer {
 public:
  explicit GraphCapturer(GraphDevice device)
      : device_(std::move(device)), pool_(device_.new_pool), staging_(device_.device, device_.staging) {}

  // First records the step, to find operators that cannot be captured. Then the step warms up on a separate stream,
  // is captured there, and is proven on `second` to rounding (FindDifference). Between warm-up and capture, the
  // allocator's free blocks are returned to the driver, since a capture can take memory only from the driver and may
  // free none. All graphs of a capturer share one pool of memory. So replays run one after the other, and each replay
  // invalidates the outputs of the replay before it. Errors: same as Capturer. If the device itself refuses the
  // capture, the error is a graph break without an operator. Device errors that the step did not cause pass through
  // (fault.h: IsOutOfMemory, IsFatalToDevice).
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override;
  // Returns an error: a graph serves one shape only.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override;
  std::vector<at::Tensor> RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) override;
  // Returns 0, since the pool belongs to the device's allocator and its size is not known here.
  int64_t shared_bytes() const override { return 0; }

 private:
  const GraphDevice device_;
  GraphPool pool_;
  Staging staging_;
  // The stream on which captures run. It is made once, since each stream has a workspace of the math library.
  std::optional<c10::Stream> side_;
};

}  // namespace permafrost::device
