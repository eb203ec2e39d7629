#include "train/step_programs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <string>
#include <utility>

#include "nn/loss.h"
#include "nn/ops/lowering.h"

namespace permafrost::train {
namespace {

// Parameters and buffers.
void Declare(const nn::TensorSet& tensors, std::vector<device::StateTensor>& state) {
  for (const nn::NamedTensor& t : tensors.parameters()) state.push_back({t.name, t.value, "parameter"});
  for (const nn::NamedTensor& t : tensors.buffers()) state.push_back({t.name, t.value, "buffer"});
}

// Other tensors, whose names begin with what they are: "exp_avg.NAME".
void Declare(const std::string& prefix, const std::vector<nn::NamedTensor>& tensors,
             std::vector<device::StateTensor>& state) {
  for (const nn::NamedTensor& t : tensors) {
    state.push_back({prefix + t.name, t.value, prefix + t.name.substr(0, t.name.find('.'))});
  }
}

// While it lives, a backward runs on the thread that calls it. Autograd would run that of another device than the CPU
// on a thread of its own: MPS has to be called from one thread only, and a recording sees its own thread's operators.
class SingleThreadedBackward {
 public:
  SingleThreadedBackward() : before_(State().get_multithreading_enabled()) {
    State().set_multithreading_enabled(false);
  }
  SingleThreadedBackward(const SingleThreadedBackward&) = delete;
  ~SingleThreadedBackward() { State().set_multithreading_enabled(before_); }

 private:
  static c10::AutogradState& State() { return c10::AutogradState::get_tls_state(); }
  const bool before_;
};

// A step only reads them, but they outlive it.
void Declare(const LossOptions& loss, std::vector<device::StateTensor>& state) {
  if (loss.class_weights.defined()) state.push_back({"loss.class_weights", loss.class_weights, "loss"});
}

}  // namespace

LossOptions LossOf(const spec::TrainOptions& options, c10::Device device) {
  LossOptions loss{.loss = options.loss,
                   .class_weights = {},
                   .lowering = options.model.lowering,
                   .precision = options.model.precision};
  if (!options.class_weights.empty()) {
    loss.class_weights = at::tensor(options.class_weights, at::TensorOptions().dtype(at::kFloat)).to(device);
  }
  return loss;
}

device::StepProgram TrainProgram(Task& task, nn::Optimizer& optimizer, const LossOptions& loss, ErrorSums& losses,
                                 std::function<void(int)> on_phase) {
  device::StepProgram program;
  Declare(task.tensors(), program.state);
  Declare("optimizer.", optimizer.state(), program.state);
  Declare("train.", losses.tensors(), program.state);
  Declare(loss, program.state);
  program.steady_state = [&optimizer] { optimizer.MakeUpdatesProportional(); };
  program.on_phase = on_phase;
  program.run = [&task, &optimizer, loss, &losses,
                 on_phase = std::move(on_phase)](const graphcache::StepInputs& inputs) -> std::vector<at::Tensor> {
    const nn::LoweringScope lowering(loss.lowering, loss.precision);
    device::MarkPhase(kBegin, on_phase);
    if (const std::optional<Task::RowStep> rows = task.StepRows(inputs)) {
      device::MarkPhase(kForward, on_phase);
      device::MarkPhase(kBackward, on_phase);
      optimizer.StepRows(rows->gradient);
      losses.Add(rows->terms);
      device::MarkPhase(kOptimizer, on_phase);
      return {};
    }
    const Task::Output output = task.Forward(inputs, Mode::kTrain);
    const nn::LossTerms terms = nn::ComputeLoss(loss.loss, output.prediction, output.labels, loss.class_weights);
    device::MarkPhase(kForward, on_phase);
    const SingleThreadedBackward on_this_thread;
    // Not backward(): its accumulation into .grad copies whatever someone else, such as a recording, still holds.
    std::vector<at::Tensor> gradients = torch::autograd::grad({terms.mean}, optimizer.parameters());
    device::MarkPhase(kBackward, on_phase);
    optimizer.Step(std::move(gradients));
    losses.Add(terms);
    device::MarkPhase(kOptimizer, on_phase);
    return {};
  };
  return program;
}

device::StepProgram EvalProgram(Task& task, const LossOptions& loss, ErrorSums& losses, ErrorSums& errors) {
  device::StepProgram program;
  Declare(task.tensors(), program.state);
  Declare("eval.", losses.tensors(), program.state);
  Declare("eval.absolute_", errors.tensors(), program.state);
  Declare(loss, program.state);
  program.run = [&task, loss, &losses, &errors](const graphcache::StepInputs& inputs) -> std::vector<at::Tensor> {
    const at::NoGradGuard no_grad;
    const nn::LoweringScope lowering(loss.lowering, loss.precision);
    Task::Output output = task.Forward(inputs, Mode::kEval);
    losses.Add(nn::ComputeLoss(loss.loss, output.prediction, output.labels, loss.class_weights));
    if (!spec::HasClasses(loss.loss)) {
      errors.Add(nn::ComputeLoss(spec::Loss::kL1, output.prediction, output.labels));
    }
    return {std::move(output.prediction)};
  };
  return program;
}

}  // namespace permafrost::train
