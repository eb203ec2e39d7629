// Tests, on the stand-in for MPS, sampled jobs whose features lie on the device, which gathers the rows of blocks.
#include "train/tasks/node_task.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "device/mps/stand_in.h"
#include "device/staging.h"
#include "step_cases.h"
#include "temp_dir.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/step_inputs.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const c10::Device kDevice{c10::kMPS, 0};

class FeatureTableTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!device::MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
  }
  std::unique_ptr<Task> Make(const spec::TrainOptions& options, uint64_t device_bytes, bool on_device = true) const {
    auto task = Task::Create(options, graph_, kDevice, 2, [] { return true; },
                             {.limits = {.process = kNoLimits.process, .device = device_bytes, .records = false},
                              .features_on_device = on_device});
    EXPECT_TRUE(task.ok()) << task.status();
    return task.ok() ? *std::move(task) : nullptr;
  }
  static nn::NodeBlock BlockOf(const absl::StatusOr<const graphcache::StepInputs*>& inputs) {
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    return NodeBlockOf(device::CopyToDevice(**inputs, kDevice));
  }

  const TempDir dir_;
  const data::OpenedDataset graph_ = WriteTinyGraph(dir_.path() / "graph", {});
  const device::MpsStandIn within_;
};

TEST_F(FeatureTableTest, ItHasARowForEachNodeAndOneOfZeros) {
  const auto& graph = std::get<std::shared_ptr<const data::Graph>>(graph_);
  const auto table = ReadFeatureTable(*graph, kDevice, [] { return true; });
  ASSERT_TRUE(table.ok()) << table.status();
  const int64_t nodes = graph->summary().nodes;
  EXPECT_EQ(table->size(0), nodes + 1);
  EXPECT_EQ(table->device(), kDevice);
  EXPECT_EQ(table->nbytes(), FeatureTableBytes(graph->summary()));
  EXPECT_EQ(table->cpu()[nodes].abs().max().item<float>(), 0);
  EXPECT_EQ(ReadFeatureTable(*graph, kDevice, [] { return false; }).status().code(), absl::StatusCode::kCancelled);
}

// Blocks of training and evaluation are tried, at their own rung and at the largest one.
TEST_F(FeatureTableTest, BlocksHaveTheFeaturesThatTheHostWouldGather) {
  const spec::TrainOptions options = NodeJob(spec::Architecture::kGcn);
  const auto on_device = Make(options, uint64_t{1} << 40), on_host = Make(options, uint64_t{1} << 40, false);
  EXPECT_THAT(std::string(on_device->reading()), HasSubstr("lie on the device, which gathers them"));
  EXPECT_THAT(std::string(on_host->reading()), IsEmpty());
  const auto compare = [](BatchStream& one, BatchStream& other, const BatchShape* shape) {
    for (;;) {
      const auto a = one.Next(), b = other.Next();
      ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
      ASSERT_EQ(*a == nullptr, *b == nullptr);
      if (*a == nullptr) return;
      const auto inputs = (*a)->PadTo(shape != nullptr ? *shape : (*a)->least_padded(), 0);
      ASSERT_TRUE(inputs.ok());
      EXPECT_EQ((*inputs)->resident, std::vector<size_t>{0}) << "the table is the first input";
      EXPECT_EQ((*inputs)->tensors[0].device(), kDevice);
      const nn::NodeBlock got = BlockOf(inputs),
                          want = BlockOf((*b)->PadTo(shape != nullptr ? *shape : (*b)->least_padded(), 0));
      EXPECT_TRUE(got.features.cpu().equal(want.features.cpu()));
      EXPECT_TRUE(got.sources.cpu().equal(want.sources.cpu()));
    }
  };
  compare(*on_device->TrainBatches(0, 0), *on_host->TrainBatches(0, 0), nullptr);
  compare(*on_device->TrainBatches(1, 0), *on_host->TrainBatches(1, 0), &on_host->plan().train_ceiling);
  compare(*on_device->EvalBatches(data::Split::kValid), *on_host->EvalBatches(data::Split::kValid), nullptr);
}

TEST_F(FeatureTableTest, WhereTheyDoNotFitTheHostGathers) {
  const spec::TrainOptions options = NodeJob(spec::Architecture::kGcn);
  const auto& summary = std::get<std::shared_ptr<const data::Graph>>(graph_)->summary();
  MemoryLimits limits{.process = kNoLimits.process, .device = uint64_t{1} << 40, .records = false};
  const auto model = NodeModelFor(options, summary, limits, "spec.");
  ASSERT_TRUE(model.ok());
  const uint64_t steps = NodeDeviceBytes(options, *model, summary, limits), table = FeatureTableBytes(summary);
  EXPECT_THAT(std::string(Make(options, steps + table)->reading()), HasSubstr("lie on the device"));
  EXPECT_THAT(std::string(Make(options, steps + table - 1)->reading()), IsEmpty());
  EXPECT_THAT(std::string(Make(options, 1)->reading()), IsEmpty());
}

// The mean of a row's neighbours is fewer bytes to copy than the neighbours.
TEST_F(FeatureTableTest, MeansAreMadeOnTheHost) {
  const spec::TrainOptions options = NodeJob(spec::Architecture::kSage);
  ASSERT_TRUE(SamplingOf(options, Mode::kTrain, std::get<std::shared_ptr<const data::Graph>>(graph_)->summary())
                  .last_hop_apart);
  EXPECT_THAT(std::string(Make(options, uint64_t{1} << 40)->reading()), IsEmpty());
}

}  // namespace
}  // namespace permafrost::train
