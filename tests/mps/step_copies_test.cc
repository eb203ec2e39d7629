// Counts the copies and waits of a step on the device mps, for every model and kind of batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../train/recorder.h"
#include "../train/step_cases.h"
#include "base/status.h"
#include "device/backend.h"
#include "device/mps/stand_in.h"
#include "fake_mps.h"
#include "nn/optimizer.h"
#include "temp_dir.h"
#include "train/loop/step_engine.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using device::FakeMps;

class StepCopiesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!device::MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
  }

  // Runs the first epoch of a case. Under FREEZE its cache is sealed before it. Under ALWAYS shapes are captured as
  // they come.
  void ExpectOneCopyAStep(const StepCase& c, const data::OpenedDataset& dataset, spec::Policy policy) {
    fake_.Reset();
    const auto backend = device::OpenBackend(DeviceKind::kMps);
    ASSERT_TRUE(backend.ok()) << backend.status();
    ASSERT_EQ((*backend)->Enter(), absl::OkStatus());
    spec::TrainOptions options = c.options;
    options.graph_cache.policy = policy;
    const auto ran = (*backend)->Within([&] { return Run(options, dataset, **backend); });
    EXPECT_EQ(ran, absl::OkStatus()) << c.why;
  }

 private:
  absl::Status Run(const spec::TrainOptions& options, const data::OpenedDataset& dataset,
                   const device::Backend& backend) {
    PF_ASSIGN_OR_RETURN(const auto task, Task::Create(options, dataset, backend.device(), 2, [] { return true; }));
    nn::Optimizer optimizer(options.optimizer, task->tensors().parameters());
    Recorder context;
    StepEngine engine(options, *task, optimizer, backend, context);
    while (!engine.cache().ready()) PF_RETURN_IF_ERROR(engine.CaptureNext(0));
    const auto batches = task->TrainBatches(0, 0);
    PhaseSeconds seconds;
    int64_t step = 0;
    for (;; ++step) {
      PF_ASSIGN_OR_RETURN(HostBatch * batch, batches->Next());
      if (batch == nullptr) break;
      const FakeMps::Copies before = fake_.copies();
      const size_t calls = fake_.calls().size();
      PF_RETURN_IF_ERROR(engine.Train(*batch, step, seconds));
      const FakeMps::Copies after = fake_.copies();
      EXPECT_EQ(after.to_device - before.to_device, 1) << "step " << step;
      EXPECT_EQ(after.waited_for, before.waited_for) << "step " << step;
      EXPECT_EQ(after.to_host, before.to_host) << "step " << step;
      const std::vector<std::string> now = fake_.calls();
      EXPECT_EQ(std::count(now.begin() + static_cast<std::ptrdiff_t>(calls), now.end(), "synchronize"), 0)
          << "step " << step;
    }
    EXPECT_GT(step, 0);
    return absl::OkStatus();
  }

  FakeMps& fake_ = FakeMps::Get();
  const device::MpsStandIn within_;
};

// Selects the plainest case of each model and kind of batch, and cases with more tensors or another optimizer.
bool IsTried(const StepCase& c) {
  if (c.why.find(',') == std::string::npos) return true;
  constexpr std::array<std::string_view, 4> kMore{"groups of batches", "sparse features", "few categories", "SGD"};
  return std::ranges::any_of(kMore, [&](std::string_view more) { return c.why.find(more) != std::string::npos; });
}

TEST_F(StepCopiesTest, AStepCopiesItsBatchOnceAndReadsNothingBack) {
  const TempDir dir;
  int folders = 0;
  for (const StepCase& c : StepCases()) {
    if (!IsTried(c)) continue;
    SCOPED_TRACE(c.why);
    const data::OpenedDataset dataset = Write(c.data, dir.path() / std::to_string(++folders));
    ExpectOneCopyAStep(c, dataset, spec::Policy::kFreeze);
    if (testing::Test::HasFailure()) return;
  }
}

TEST_F(StepCopiesTest, SoDoesAStepOfAShapeThatWasNotPlanned) {
  const TempDir dir;
  ExpectOneCopyAStep({"graphs", 60, GraphJob()}, Write(60, dir.path() / "graphs"), spec::Policy::kAlways);
}

}  // namespace
}  // namespace permafrost::train
