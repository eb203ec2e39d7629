// The training and the evaluation step of a job, as programs that a device can capture, and the compiler that has it
// capture them.
// Threads: the device thread.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "collective/group.h"
#include "device/backend.h"
#include "device/step_program.h"
#include "graphcache/executable.h"
#include "nn/loss.h"
#include "nn/optimizer.h"
#include "nn/tensor_set.h"
#include "spec/loss.h"
#include "spec/model.h"
#include "train/tasks/task.h"

namespace permafrost::train {

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

}  // namespace permafrost::train
