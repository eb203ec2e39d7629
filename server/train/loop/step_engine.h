// The training and the evaluation step of a job as programs that a device can capture, the compiler that has it capture
// them, and the engine that does every step of a run with them.
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

// Compiles the kernels that steps on a GPU use (nn/gpu) for the backend's device; a device that compiles none gets
// none. It is called before the first step on the device. Errors: FailedPrecondition in one line; steps then run by
// PyTorch's operators.
absl::Status UseKernelsOf(const device::Backend& backend);

// Sums of a loss over many batches. They are kept on the device: only reading them waits for it.
class ErrorSums {
 public:
  // float64, or pairs of float32 where the device has no float64 (MPS): what a sum loses is summed beside it, so that
  // an epoch of 2^24 labels and more is summed as float64 would. Source: Knuth, TAOCP 2, 4.2.2, theorem B.
  explicit ErrorSums(c10::Device device) : ErrorSums(device, device.is_mps()) {}
  ErrorSums(c10::Device device, bool pairs);

  void Reset();
  void Add(const nn::LossTerms& terms);
  // NaN where no label was present. Waits for the device once.
  double Mean() const;
  // The number of values that were added. Waits for the device.
  double Count() const { return Read()[1]; }
  // The tensors themselves, for checkpoints: "loss_sum", "loss_count"; of pairs also "loss_sum_rest",
  // "loss_count_rest".
  const std::vector<nn::NamedTensor>& tensors() const { return tensors_; }

 private:
  std::array<double, 2> Read() const;
  void Add(size_t place, const at::Tensor& term);

  std::vector<nn::NamedTensor> tensors_;
};

// Moments of a training step that on_phase is told of: its begin, and the end of each phase.
enum Phase : int { kBegin, kForward, kBackward, kOptimizer };

struct LossOptions {
  spec::Loss loss = spec::Loss::kL1;
  at::Tensor class_weights;                         // undefined: all 1
  spec::Lowering lowering = spec::Lowering::kAuto;  // of the whole step, as precision
  spec::Precision precision = spec::Precision::kFloat32;
  std::optional<at::ScalarType> on_wire;  // as collective::AllReduceSum, for gradients
};

// The loss options of a job, on the device of its steps.
LossOptions LossOf(const spec::TrainOptions& options, c10::Device device);

// Forward, loss, backward, clipping, optimizer; the batch's loss is added to `losses`. Returns nothing. Borrows
// everything.
device::StepProgram TrainProgram(Task& task, nn::Optimizer& optimizer, const LossOptions& loss, ErrorSums& losses,
                                 std::function<void(int phase)> on_phase);

// Forward only; the batch's loss, and its absolute error where that is the loss's metric, are added to `losses` and
// `errors`. Returns the predictions [padded graphs, outputs]. Borrows everything.
device::StepProgram EvalProgram(Task& task, const LossOptions& loss, ErrorSums& losses, ErrorSums& errors);

// Why a device that does not record has no dynamic executables.
std::string OneShapeReason(DeviceKind device);

// Why there are no dynamic executables for the task on this device; empty: there are.
std::string NoDynamicReason(const device::Backend& backend, const Task& task);

// Makes the executables of one job: takes two batches of its data for a shape and has the device capture the step.
// Borrows everything.
class StepCompiler final : public graphcache::Compiler {
 public:
  // `group`: the ranks that share the training steps; nullptr: there are no others.
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
  // If the step resists being recorded for every shape, or the task or device has no such recording, the result is
  // Capture's.
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRung(Mode mode, const BatchShape& shape) override;
  absl::Status WarmUp(Mode mode, const BatchShape& shape) override;
  std::string NoDynamicReason() const override { return train::NoDynamicReason(backend_, task_); }
  absl::StatusOr<graphcache::StepResult> RunEager(Mode mode, const graphcache::StepInputs& inputs) override;
  int64_t shared_bytes() const override { return capturer_->shared_bytes(); }
  // Gives back the memory that replays are served from, until the next one. Results that executables returned before
  // are not valid any more.
  void GiveBackMemory() { capturer_->GiveBackMemory(); }

 private:
  const std::array<const device::StepProgram*, 2> programs_;  // by Mode
  Task& task_;
  const device::Backend& backend_;
  const std::unique_ptr<device::Capturer> capturer_;
  const std::function<void(std::string_view line)> log_;
  collective::Group* const group_;
  std::array<bool, 2> resists_{};  // by Mode: each rung is recorded for itself
};

// Does every step of a run: batches go through the job's graph cache and come out as a replay, a capture or an eager
// step. Borrows what it is made of; lives for one run.
class StepEngine {
 public:
  // `group`: the ranks that share the training steps; nullptr: there are no others.
  StepEngine(const spec::TrainOptions& options, Task& task, nn::Optimizer& optimizer, const device::Backend& backend,
             RunContext& context, collective::Group* group = nullptr);
  StepEngine(const StepEngine&) = delete;
  ~StepEngine();

  // Makes the captures that the cache is to have before the next step: GraphCache::CaptureNext and Apply. A cleared
  // cache empties those of a device that keeps graphs, before anything is captured again.
  absl::Status CaptureNext(int64_t step);
  absl::Status Apply(const graphcache::Command& command, int64_t step);

  // One training step on `batch`, which is padded to what the cache chose. `step`: optimizer steps done. Adds what each
  // phase took to `seconds`; on asynchronous devices that is the time to enqueue it.
  absl::Status Train(HostBatch& batch, int64_t step, PhaseSeconds& seconds);
  // One evaluation step. Returns [padded graphs, outputs], valid until the next step.
  absl::StatusOr<at::Tensor> Evaluate(HostBatch& batch, int64_t step);

  // The sums since their last reset: losses over training steps, loss and absolute error over evaluation steps.
  ErrorSums& losses() { return losses_; }
  const ErrorSums& losses() const { return losses_; }
  ErrorSums& eval_losses() { return eval_losses_; }
  ErrorSums& eval_errors() { return eval_errors_; }
  graphcache::GraphCache& cache() { return cache_; }  // steps, captures and commands go through this engine
  const graphcache::GraphCache& cache() const { return cache_; }

  // Tells the context of the cache, and of its entries where it is time to or `with_entries` says so.
  void Report(bool with_entries = false);

 private:
  using Clock = std::chrono::steady_clock;
  void OnPhase(int phase);
  absl::StatusOr<graphcache::StepResult> Run(Mode mode, HostBatch& batch, int64_t step);
  // These tell a device that keeps graphs of steps and policies, and empty it.
  absl::Status EndStepOnDevice();
  absl::Status EmptyDevice(EmptyReason reason);
  void AnnouncePolicyOnDevice();
  void TellSealed();

  // Tells those who make batches ready how the cache will pad them.
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
  PhaseSeconds* phase_seconds_ = nullptr;  // of the step that runs
  Clock::time_point next_entries_ = Clock::time_point::min();
  bool told_sealed_ = false;
  int64_t thresholds_ = 0;  // how often the driver's memory passed its threshold
};

}  // namespace permafrost::train
