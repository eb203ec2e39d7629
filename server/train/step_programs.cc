#include "train/step_programs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <utility>

#include "nn/loss.h"
#include "train/step_inputs.h"

namespace permafrost::train {
namespace {

void Declare(const std::string& prefix, const std::vector<nn::NamedTensor>& tensors,
             std::vector<device::StateTensor>& state) {
  for (const nn::NamedTensor& t : tensors) state.push_back({prefix + t.name, t.value});
}

}  // namespace

device::StepProgram TrainProgram(nn::Gine& model, nn::Optimizer& optimizer, nn::Loss loss, ErrorSums& losses,
                                 std::function<void(int)> on_phase) {
  device::StepProgram program;
  Declare("", model.tensors().All(), program.state);
  Declare("optimizer.", optimizer.state(), program.state);
  Declare("train.", losses.tensors(), program.state);
  program.on_phase = on_phase;
  program.run = [&model, &optimizer, loss, &losses,
                 on_phase = std::move(on_phase)](const graphcache::StepInputs& inputs) -> std::vector<at::Tensor> {
    const nn::GraphBatch batch = BatchOf(inputs);
    const nn::LossTerms terms = nn::ComputeLoss(loss, model.Forward(batch, nn::Mode::kTrain), batch.labels);
    device::MarkPhase(kForward, on_phase);
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

device::StepProgram EvalProgram(nn::Gine& model, nn::Loss loss, ErrorSums& losses, ErrorSums& errors) {
  device::StepProgram program;
  Declare("", model.tensors().All(), program.state);
  Declare("eval.", losses.tensors(), program.state);
  Declare("eval.absolute_", errors.tensors(), program.state);
  program.run = [&model, loss, &losses, &errors](const graphcache::StepInputs& inputs) -> std::vector<at::Tensor> {
    const at::NoGradGuard no_grad;
    const nn::GraphBatch batch = BatchOf(inputs);
    at::Tensor prediction = model.Forward(batch, nn::Mode::kEval);
    losses.Add(nn::ComputeLoss(loss, prediction, batch.labels));
    errors.Add(nn::ComputeLoss(nn::Loss::kL1, prediction, batch.labels));
    return {std::move(prediction)};
  };
  return program;
}

}  // namespace permafrost::train
