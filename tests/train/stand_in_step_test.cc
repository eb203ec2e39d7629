// Tests steps of every model, on the CPU and on the stand-in for MPS, with every lowering. They call nothing that MPS
// lacks, and compute the same as the CPU's fused operators.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/backend.h"
#include "device/mps/stand_in.h"
#include "device/staging.h"
#include "step_cases.h"
#include "temp_dir.h"
#include "train/loop/step_engine.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

// A model and its optimizer on a device.
struct DeviceRig {
  DeviceRig(const spec::TrainOptions& options, const data::OpenedDataset& dataset, c10::Device on)
      : device(on),
        task(*Task::Create(options, dataset, on, 2, [] { return true; })),
        optimizer(options.optimizer, task->tensors().parameters()),
        losses(on),
        eval_losses(on),
        eval_errors(on),
        train(TrainProgram(*task, optimizer, LossOf(options, on), losses, [](int) {})),
        eval(EvalProgram(*task, LossOf(options, on), eval_losses, eval_errors)) {}

  // Returns, by name, what the first batch of the mode leaves: predictions, moments (which contain the gradients),
  // running statistics, and sums. Leaves out the parameters, because Adam turns the sign of a gradient into a step,
  // and the sign of 1e-9 is noise.
  std::vector<nn::NamedTensor> AfterOneStep(Mode mode) {
    const auto batches = mode == Mode::kTrain ? task->TrainBatches(0, 0) : task->EvalBatches(data::Split::kValid);
    const auto batch = batches->Next();
    EXPECT_TRUE(batch.ok() && *batch != nullptr);
    const auto inputs = (*batch)->PadDynamic(0);
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    const auto predictions = (mode == Mode::kTrain ? train : eval).run(device::CopyToDevice(**inputs, device));
    std::vector<nn::NamedTensor> left;
    for (const at::Tensor& p : predictions) left.push_back({"prediction", p.narrow(0, 0, std::ssize((*batch)->ids()))});
    for (const auto* sums : {&losses.tensors(), &eval_losses.tensors(), &eval_errors.tensors(), &optimizer.state()}) {
      left.insert(left.end(), sums->begin(), sums->end());
    }
    for (const nn::NamedTensor& t : task->tensors().All()) {
      if (!t.value.requires_grad()) left.push_back(t);
    }
    // Drops the low-order parts of float32 sums, because the CPU sums in float64.
    std::erase_if(left, [](const nn::NamedTensor& t) { return t.name.ends_with("_rest"); });
    // Drops the averages, which equal the parameters after a first update.
    std::erase_if(left, [](const nn::NamedTensor& t) { return t.name.starts_with("average."); });
    for (nn::NamedTensor& t : left) t.value = t.value.detach().clone();
    return left;
  }

  const c10::Device device;
  const std::unique_ptr<Task> task;
  nn::Optimizer optimizer;
  ErrorSums losses, eval_losses, eval_errors;
  const device::StepProgram train, eval;
};

std::vector<std::string> NamesOf(const std::vector<nn::NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const nn::NamedTensor& t : tensors) names.push_back(t.name);
  return names;
}

TEST(StandInStepTest, StepsOfEveryLoweringAreThoseOfTheCpu) {
  const device::MpsStandIn within;
  device::UseThreads(2);
  const TempDir dir;
  int folders = 0;
  std::vector<c10::Device> devices{at::kCPU};
  if (device::MpsStandIn::present()) devices.emplace_back(at::kMPS);
  for (const StepCase& c : StepCases()) {
    const data::OpenedDataset dataset = Write(c.data, dir.path() / std::to_string(++folders));
    DeviceRig fused(c.options, dataset, at::kCPU);
    std::vector<Mode> modes{Mode::kTrain};
    if (c.evaluates_by_steps()) modes.insert(modes.begin(), Mode::kEval);
    std::map<Mode, std::vector<nn::NamedTensor>> wanted;
    for (const Mode mode : modes) wanted[mode] = fused.AfterOneStep(mode);
    for (const c10::Device device : devices) {
      for (const spec::Lowering lowering : {spec::Lowering::kPlain, spec::Lowering::kShapeFree}) {
        spec::TrainOptions options = c.options;
        options.model.lowering = lowering;
        DeviceRig rig(options, dataset, device);
        for (const Mode mode : modes) {
          const auto& want = wanted[mode];
          const auto got = rig.AfterOneStep(mode);
          ASSERT_EQ(NamesOf(want), NamesOf(got)) << c.why << " by " << spec::kLoweringNames.Name(lowering);
          for (size_t i = 0; i < want.size(); ++i) {
            EXPECT_EQ(got[i].value.device().type(), device.type());
            const at::Tensor difference = got[i].value.cpu().to(at::kDouble) - want[i].value.to(at::kDouble);
            const double largest =
                want[i].value.numel() == 0 ? 0 : want[i].value.to(at::kDouble).abs().max().item<double>();
            EXPECT_TRUE(at::allclose(got[i].value.cpu().to(at::kDouble), want[i].value.to(at::kDouble), 1e-4,
                                     1e-6 * (1 + largest)))
                << c.why << " by " << spec::kLoweringNames.Name(lowering) << " on " << device << ", " << want[i].name
                << ": " << difference.abs().max().item<double>() << " apart";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::train
