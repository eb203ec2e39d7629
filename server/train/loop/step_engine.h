// The steps of a job as programs that a device can capture, the compiler that captures them, and the engine that runs
// every step.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/group.h"
#include "device/backend.h"
#include "device/step_program.h"
#include "graphcache/executable.h"
#include "graphcache/graph_cache.h"
#include "nn/loss.h"
#include "nn/optimizer.h"
#include "nn/tensor_set.h"
#include "spec/loss.h"
#include "spec/model.h"
#include "train/runner.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// Compiles the kernels that steps on a GPU use (nn/gpu) for the backend's device. A no-op on devices that compile no
// kernels. Call it before the first step on the device.
// Errors: FailedPrecondition with a message of one line. After an error, steps use PyTorch's operators.
absl::Status UseKernelsOf(const device::Backend& backend);

// Sums a loss over many batches. The sums stay on the device, so that adding to them does not wait for the device.
class ErrorSums {
 public:
  // Sums in float64, or in pairs of float32 if the device has no float64 (MPS). The second float32 of a pair sums the
  // rounding errors of the first. So even over 2^24 labels or more, a sum is about as exact as in float64. Source:
  // Knuth, TAOCP 2, 4.2.2, theorem B.
  explicit ErrorSums(c10::Device device) : ErrorSums(device, device.is_mps()) {}
  ErrorSums(c10::Device device, bool pairs);

  void Reset();
  void Add(const nn::LossTerms& terms);
  // Returns the mean of the loss over the labels, or NaN if no label was present. Waits for the device once.
  double Mean() const;
  // Returns the number of values that were added. Waits for the device once.
  double Count() const { return Read()[1]; }
  // Returns the tensors themselves, for checkpoints: "loss_sum" and "loss_count", and for pairs also "loss_sum_rest"
  // and "loss_count_rest".
  const std::vector<nn::NamedTensor>& tensors() const { return tensors_; }

 private:
  std::array<double, 2> Read() const;
  void Add(size_t place, const at::Tensor& term);

  std::vector<nn::NamedTensor> tensors_;
};

// The moments of a training step at which on_phase is called: kBegin at the begin of the step, and each other value
// at the end of the phase that it names.
enum Phase : int { kBegin, kForward, kBackward, kOptimizer };

struct LossOptions {
  spec::Loss loss = spec::Loss::kL1;
  at::Tensor class_weights;                         // undefined if all are 1
  spec::Lowering lowering = spec::Lowering::kAuto;  // holds for the whole step, as `precision` does
  spec::Precision precision = spec::Precision::kFloat32;
  std::optional<at::ScalarType> on_wire;  // type in which ranks exchange gradients (collective::AllReduceSum)
};

// Returns the loss options of a job, with tensors on the device of its steps.
LossOptions LossOf(const spec::TrainOptions& options, c10::Device device);

// Returns the training step: forward, loss, backward, clipping, optimizer. The step adds the batch's loss to
// `losses`, and returns no tensors. Borrows all arguments.
device::StepProgram TrainProgram(Task& task, nn::Optimizer& optimizer, const LossOptions& loss, ErrorSums& losses,
                                 std::function<void(int phase)> on_phase);

// Returns the evaluation step, which is forward only. It adds the batch's loss to `losses`, and its absolute error to
// `errors` unless the loss is over classes. It returns the predictions [padded graphs, outputs]. Borrows all
// arguments.
device::StepProgram EvalProgram(Task& task, const LossOptions& loss, ErrorSums& losses, ErrorSums& errors);

// Returns why a device that does not record has no dynamic executables.
std::string OneShapeReason(DeviceKind device);

// Returns why the task has no dynamic executables on this device; empty if it has them.
std::string NoDynamicReason(const device::Backend& backend, const Task& task);

// Makes the executables of one job. To capture a step at a shape, it gives the device two batches of the job's data.
// Borrows all arguments.
class StepCompiler final : public graphcache::Compiler {
 public:
  // `group` holds the ranks that share the training steps; null if this rank is the only one.
  StepCompiler(const device::StepProgram& train, const device::StepProgram& eval, Task& task,
               const device::Backend& backend, std::function<void(std::string_view line)> log,
               collective::Group* group = nullptr)
      : programs_{&train, &eval},
        task_(task),
        backend_(backend),
        capturer_(backend.MakeCapturer()),
        log_(std::move(log)),
        group_(group) {}

  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(Mode mode) override;
  // Does the same as Capture in three cases: the step cannot be recorded for every shape, there are no dynamic
  // executables, or `shape` has fewer rows of some kind than kLeastDynamic.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRung(Mode mode, const BatchShape& shape) override;
  absl::Status WarmUp(Mode mode, const BatchShape& shape) override;
  std::string NoDynamicReason() const override { return train::NoDynamicReason(backend_, task_); }
  absl::StatusOr<graphcache::StepResult> RunEager(Mode mode, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return capturer_->shared_bytes(); }
  // Releases the memory of replays until the next replay. Earlier results of executables become invalid.
  void GiveBackMemory() { capturer_->GiveBackMemory(); }

 private:
  const std::array<const device::StepProgram*, 2> programs_;  // by Mode
  Task& task_;
  const device::Backend& backend_;
  const std::unique_ptr<device::Capturer> capturer_;
  const std::function<void(std::string_view line)> log_;
  collective::Group* const group_;
  // By Mode: true if the step cannot be recorded for every shape, so that each rung is recorded by itself.
  std::array<bool, 2> resists_{};
};

// Runs every step of a run. It passes each batch to the job's graph cache, which makes the step a replay, a capture
// or an eager step. Borrows its arguments; lives for one run.
class StepEngine {
 public:
  // `group` holds the ranks that share the training steps; null if this rank is the only one.
  StepEngine(const spec::TrainOptions& options, Task& task, nn::Optimizer& optimizer, const device::Backend& backend,
             RunContext& context, collective::Group* group = nullptr);
  StepEngine(const StepEngine&) = delete;
  ~StepEngine();

  // CaptureNext and Apply make the captures that the cache needs before the next step, as in GraphCache. On a device
  // that keeps compiled graphs, a clear command first empties the device's caches.
  absl::Status CaptureNext(int64_t step);
  absl::Status Apply(const graphcache::Command& command, int64_t step);

  // Runs one training step on `batch`, padded to the shape that the cache chooses. `step` is the number of optimizer
  // steps done. Adds the time of each phase to `seconds`; on an asynchronous device, only the time to enqueue it.
  absl::Status Train(HostBatch& batch, int64_t step, PhaseSeconds& seconds);
  // Runs one evaluation step. Returns [padded graphs, outputs], valid until the next step.
  absl::StatusOr<at::Tensor> Evaluate(HostBatch& batch, int64_t step);

  // These methods return the sums since their last reset: the loss over training steps, and the loss and the absolute
  // error over evaluation steps.
  ErrorSums& losses() { return losses_; }
  const ErrorSums& losses() const { return losses_; }
  ErrorSums& eval_losses() { return eval_losses_; }
  ErrorSums& eval_errors() { return eval_errors_; }
  graphcache::GraphCache& cache() { return cache_; }  // run steps, captures and commands through this engine instead
  const graphcache::GraphCache& cache() const { return cache_; }

  // Reports the cache to the context. Includes the entries if `with_entries` is true, or if half a second has passed
  // since the entries were last reported.
  void Report(bool with_entries = false);

 private:
  using Clock = std::chrono::steady_clock;
  void OnPhase(int phase);
  absl::StatusOr<graphcache::StepResult> Run(Mode mode, HostBatch& batch, int64_t step);
  // EndStepOnDevice, EmptyDevice and AnnouncePolicyOnDevice serve a device that keeps compiled graphs. They handle
  // the end of a step, empty the device's caches, and handle a change of policy.
  absl::Status EndStepOnDevice();
  absl::Status EmptyDevice(EmptyReason reason);
  void AnnouncePolicyOnDevice();
  void TellSealed();

  // Tells the task how the cache will pad batches (Task::Prepare).
  void TellTask();

  const device::Backend& backend_;
  RunContext& context_;
  Task& task_;
  collective::Group* const group_;
  ErrorSums losses_, eval_losses_, eval_errors_;
  const device::StepProgram train_, eval_;
  StepCompiler compiler_;
  graphcache::GraphCache cache_;
  Clock::time_point phase_begin_;
  PhaseSeconds* phase_seconds_ = nullptr;  // the present step adds its times to this
  Clock::time_point next_entries_ = Clock::time_point::min();
  bool told_sealed_ = false;
  int64_t thresholds_ = 0;  // the number of times that the driver's memory passed its threshold
};

}  // namespace permafrost::train
