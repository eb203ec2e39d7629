// Steps of every model on the stand-in for MPS: nothing that MPS lacks is called, and what they compute is what the CPU
// computes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "device/backend.h"
#include "device/mps/stand_in.h"
#include "step_cases.h"
#include "temp_dir.h"
#include "train/step_programs.h"
#include "train/task.h"

namespace permafrost::train {
namespace {

// A model with its optimizer on a device.
struct DeviceRig {
  DeviceRig(const TrainOptions& options, const data::OpenedDataset& dataset, c10::Device on)
      : task(*Task::Create(options, dataset, on, 2, [] { return true; })),
        optimizer(options.optimizer, task->tensors().parameters()),
        losses(on),
        eval_losses(on),
        eval_errors(on),
        train(TrainProgram(*task, optimizer, LossOf(options, on), losses, [](int) {})),
        eval(EvalProgram(*task, LossOf(options, on), eval_losses, eval_errors)) {}

  // What the first batch of the mode leaves, by name: predictions; moments, which hold the gradients; running
  // statistics; sums. Not the parameters: Adam makes a step of a gradient's sign, and that of 1e-9 is noise.
  std::vector<nn::NamedTensor> AfterOneStep(Mode mode) {
    const auto batches = mode == Mode::kTrain ? task->TrainBatches(0, 0) : task->EvalBatches(data::Split::kValid);
    const auto batch = batches->Next();
    EXPECT_TRUE(batch.ok() && *batch != nullptr);
    const auto inputs = (*batch)->PadDynamic(0);
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    const auto predictions = (mode == Mode::kTrain ? train : eval).run(**inputs);
    std::vector<nn::NamedTensor> left;
    for (const at::Tensor& p : predictions) left.push_back({"prediction", p.narrow(0, 0, std::ssize((*batch)->ids()))});
    for (const auto* sums : {&losses.tensors(), &eval_losses.tensors(), &eval_errors.tensors(), &optimizer.state()}) {
      left.insert(left.end(), sums->begin(), sums->end());
    }
    for (const nn::NamedTensor& t : task->tensors().All()) {
      if (!t.value.requires_grad()) left.push_back(t);
    }
    // Of sums in pairs, which the CPU has no use for.
    std::erase_if(left, [](const nn::NamedTensor& t) { return t.name.ends_with("_rest"); });
    return left;
  }

  const std::unique_ptr<Task> task;
  nn::Optimizer optimizer;
  ErrorSums losses, eval_losses, eval_errors;
  const device::StepProgram train, eval;
};

TEST(StandInStepTest, StepsAreThoseOfTheCpu) {
  if (!device::MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
  const device::MpsStandIn within;
  device::UseThreads(2);
  const TempDir dir;
  int folders = 0;
  for (const StepCase& c : StepCases()) {
    const data::OpenedDataset dataset = Write(c.data, dir.path() / std::to_string(++folders));
    DeviceRig cpu(c.options, dataset, at::kCPU), mps(c.options, dataset, at::kMPS);
    for (const Mode mode : {Mode::kEval, Mode::kTrain}) {
      const auto want = cpu.AfterOneStep(mode), got = mps.AfterOneStep(mode);
      ASSERT_EQ(want.size(), got.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(got[i].value.is_mps());
        const at::Tensor one = want[i].value.detach().to(at::kDouble),
                         other = got[i].value.detach().cpu().to(at::kDouble);
        EXPECT_TRUE(at::allclose(other, one, 1e-4, 1e-6))
            << c.why << ", " << want[i].name << ": " << (one - other).abs().max().item<double>() << " apart";
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::train
