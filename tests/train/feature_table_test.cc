// Tests the placement of features that the device gathers, and sampled jobs with such features on the stand-in for
// MPS.
#include "train/tasks/feature_table.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/resources.h"
#include "base/string_view.h"
#include "data/rows/row_caches.h"
#include "device/mps/stand_in.h"
#include "device/staging.h"
#include "step_cases.h"
#include "temp_dir.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/node_task.h"
#include "train/tasks/step_inputs.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;

const c10::Device kDevice{c10::kMPS, 0};

TEST(SplitFeaturesTest, TheDeviceHasAsManyRowsAsFit) {
  // The table has 1,000 rows of 100 bytes, and the index of their places takes 4,000 bytes.
  const struct {
    const char* why;
    FeatureMemory memory;
    FeatureSplit want;
  } kCases[] = {
      {"all fit on the device", {.device = 100'000, .host = 0}, {.device = 1000}},
      {"all fit on the device, so that what gathers from two parts needs no room",
       {.device = 100'000, .gathering = 90'000, .host = 100'000},
       {.device = 1000}},
      {"one byte is missing, and there is no pinned memory", {.device = 99'999, .host = 0}, {}},
      {"the rest is pinned", {.device = 54'000, .host = 50'000}, {.device = 500, .host = 500}},
      {"gathering from two parts takes of the device",
       {.device = 54'000, .gathering = 10'000, .host = 100'000},
       {.device = 400, .host = 600}},
      {"the host has no room for the rest", {.device = 54'000, .host = 49'999}, {}},
      {"the device has no room for a row beside the places", {.device = 4'099, .host = 100'000}, {.host = 1000}},
      {"the device has room for a row", {.device = 4'100, .host = 100'000}, {.device = 1, .host = 999}},
      {"the device has no room at all", {.device = 0, .host = 100'000}, {.host = 1000}},
      {"nobody has room", {.device = 0, .host = 99'999}, {}},
  };
  for (const auto& c : kCases) EXPECT_EQ(SplitFeatures(1000, 100, c.memory), c.want) << c.why;
}

TEST(SplitFeaturesTest, HalfOfTheMemoryIsPinnedAtMost) {
  EXPECT_EQ(PinnableBytes(1000, 0), 500U);
  EXPECT_EQ(PinnableBytes(1000, 500), 500U);
  EXPECT_EQ(PinnableBytes(1000, 501), 499U);
  EXPECT_EQ(PinnableBytes(1000, 1001), 0U);
}

TEST(SplitFeaturesTest, TheRowsWantedMostAreChosen) {
  const std::vector<float> wanted = {0.5, 2, 0, 2, 1, 2};
  EXPECT_THAT(MostWanted(wanted, 0), ElementsAre(false, false, false, false, false, false));
  EXPECT_THAT(MostWanted(wanted, 2), ElementsAre(false, true, false, true, false, false)) << "the first of equal ones";
  EXPECT_THAT(MostWanted(wanted, 4), ElementsAre(false, true, false, true, true, true));
  EXPECT_THAT(MostWanted(wanted, 6), ElementsAre(true, true, true, true, true, true));
}

// Allocates host memory that the stand-in reads as its own.
std::optional<device::PinnedRows> AllocatePinned(int64_t rows, int64_t width) {
  const at::Tensor host = at::empty({rows, width}, at::kFloat);
  return device::PinnedRows{.host = host,
                            .device = at::from_blob(
                                host.mutable_data_ptr(), {rows, width}, [host](void* /*memory*/) {},
                                at::TensorOptions().dtype(at::kFloat).device(kDevice), kDevice)};
}

// A host that pins memory for a device.
struct Host {
  std::function<std::optional<device::PinnedRows>(int64_t, int64_t)> allocate_pinned = nullptr;
  uint64_t process = kNoLimits.process;
  data::RowCaches* rows = nullptr;
};

class FeatureTableTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!device::MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
  }
  std::unique_ptr<Task> Make(const spec::TrainOptions& options, uint64_t device_bytes, bool on_device = true,
                             const Host& host = {}, c10::Device device = kDevice) const {
    auto task = Task::Create(options, graph_, device, 2, [] { return true; },
                             {.limits = {.process = host.process, .device = device_bytes, .records = false},
                              .rows = host.rows,
                              .features_on_device = on_device,
                              .allocate_pinned = host.allocate_pinned});
    EXPECT_TRUE(task.ok()) << task.status();
    return task.ok() ? *std::move(task) : nullptr;
  }
  static nn::NodeBlock BlockOf(const absl::StatusOr<const graphcache::StepInputs*>& inputs) {
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    return NodeBlockOf(device::CopyToDevice(**inputs, kDevice));
  }

  const data::Graph& graph() const { return *std::get<std::shared_ptr<const data::Graph>>(graph_); }
  const data::GraphSummary& summary() const { return graph().summary(); }
  uint64_t TableBytes() const {
    return static_cast<uint64_t>(FeatureTableRows(summary())) * static_cast<uint64_t>(FeatureRowBytes(summary()));
  }
  // Returns the bytes of device memory that steps take.
  uint64_t StepsOf(const spec::TrainOptions& options) const {
    const MemoryLimits limits{.process = kNoLimits.process, .device = uint64_t{1} << 40, .records = false};
    const auto model = NodeModelFor(options, summary(), limits, "spec.");
    EXPECT_TRUE(model.ok()) << model.status();
    return NodeDeviceBytes(options, *model, summary(), limits);
  }

  const TempDir dir_;
  const data::OpenedDataset graph_ = WriteTinyGraph(dir_.path() / "graph", {});
  const device::MpsStandIn within_;
};

TEST_F(FeatureTableTest, ItHasARowForEachNodeAndOneOfZeros) {
  const int64_t nodes = summary().nodes;
  const auto table =
      ReadFeatureTable(graph(), {.device = kDevice, .split = {.device = nodes + 1}, .wanted = {}}, [] { return true; });
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->rows.size(0), nodes + 1);
  EXPECT_EQ(table->rows.device(), kDevice);
  EXPECT_EQ(table->rows.nbytes(), TableBytes());
  EXPECT_EQ(table->rows.cpu()[nodes].abs().max().item<float>(), 0);
  EXPECT_FALSE(table->rest.defined());
  EXPECT_EQ(
      ReadFeatureTable(graph(), {.device = kDevice, .split = {.device = nodes + 1}, .wanted = {}}, [] { return false; })
          .status()
          .code(),
      absl::StatusCode::kCancelled);
}

TEST_F(FeatureTableTest, TheRowsOfTwoPartsAreThoseOfOne) {
  const int64_t nodes = summary().nodes;
  std::vector<float> wanted(static_cast<size_t>(nodes));
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<float>(i * 7 % wanted.size());
  const auto read = [&](const FeatureSplit& split) {
    const auto table = ReadFeatureTable(
        graph(), {.device = kDevice, .split = split, .allocate_pinned = AllocatePinned, .wanted = wanted},
        [] { return true; });
    EXPECT_TRUE(table.ok()) << table.status();
    return *table;
  };
  const at::Tensor numbers = at::cat({at::arange(nodes + 1), at::tensor(std::vector<int64_t>{5, 3, 3})}).to(kDevice);
  const at::Tensor want = GatherRows(read({.device = nodes + 1}), numbers).cpu();
  for (const int64_t on_device : {int64_t{0}, int64_t{1}, int64_t{2}, nodes / 2, nodes}) {
    const FeatureTable table = read({.device = on_device, .host = nodes + 1 - on_device});
    EXPECT_EQ(table.rest.defined(), on_device > 0);
    EXPECT_TRUE(GatherRows(table, numbers).cpu().equal(want)) << on_device << " rows on the device";
  }
  const FeatureTable table = read({.device = 2, .host = nodes - 1});
  EXPECT_EQ(table.places.cpu()[nodes].item<int32_t>(), 1) << "the row of zeros is on the device";
}

TEST_F(FeatureTableTest, WithoutPinnedMemoryThereIsNone) {
  const auto table = ReadFeatureTable(graph(),
                                      {.device = kDevice,
                                       .split = {.host = summary().nodes + 1},
                                       .allocate_pinned = [](int64_t, int64_t) { return std::nullopt; },
                                       .wanted = {}},
                                      [] { return true; });
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_FALSE(table->defined());
}

// Tries blocks of training and evaluation, at their own rung and at the largest one.
TEST_F(FeatureTableTest, BlocksHaveTheFeaturesThatTheHostWouldGather) {
  spec::TrainOptions options = NodeJob(spec::Architecture::kGcn);
  // Makes blocks small in comparison with the table.
  options.batch_size = 4;
  options.nodes.fan_outs = {2, 1};
  const auto on_host = Make(options, uint64_t{1} << 40, false);
  EXPECT_THAT(std::string(on_host->reading()), IsEmpty());
  // A tenth of the rows fits on the device.
  const uint64_t places = sizeof(int32_t) * static_cast<uint64_t>(FeatureTableRows(summary()));
  const uint64_t some = StepsOf(options) + GatheringBytes(options, summary()) + places + TableBytes() / 10;
  const struct {
    const char* line;
    std::unique_ptr<Task> task;
    std::vector<size_t> resident;
  } placements[] = {
      {"lie on the device, which gathers them", Make(options, uint64_t{1} << 40), {0}},
      {"MB lie in pinned memory of the host",
       Make(options, StepsOf(options), true, {.allocate_pinned = AllocatePinned}),
       {0}},
      {"wanted most", Make(options, some, true, {.allocate_pinned = AllocatePinned}), {0, 1, 2}},
  };
  const auto compare = [](BatchStream& one, BatchStream& other, const BatchShape* shape,
                          const std::vector<size_t>& resident) {
    for (;;) {
      const auto a = one.Next(), b = other.Next();
      ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
      ASSERT_EQ(*a == nullptr, *b == nullptr);
      if (*a == nullptr) return;
      const auto inputs = (*a)->PadTo(shape != nullptr ? *shape : (*a)->least_padded(), 0);
      ASSERT_TRUE(inputs.ok());
      EXPECT_EQ((*inputs)->resident, resident) << "the table is the first inputs";
      for (const size_t place : resident) EXPECT_EQ((*inputs)->tensors[place].device(), kDevice);
      const nn::NodeBlock got = BlockOf(inputs),
                          want = BlockOf((*b)->PadTo(shape != nullptr ? *shape : (*b)->least_padded(), 0));
      EXPECT_TRUE(got.features.cpu().equal(want.features.cpu()));
      EXPECT_TRUE(got.sources.cpu().equal(want.sources.cpu()));
    }
  };
  for (const auto& [line, task, resident] : placements) {
    EXPECT_THAT(std::string(task->reading()), HasSubstr(line));
    compare(*task->TrainBatches(0, 0), *on_host->TrainBatches(0, 0), nullptr, resident);
    compare(*task->TrainBatches(1, 0), *on_host->TrainBatches(1, 0), &on_host->plan().train_ceiling, resident);
    compare(*task->EvalBatches(data::Split::kValid), *on_host->EvalBatches(data::Split::kValid), nullptr, resident);
  }
}

TEST_F(FeatureTableTest, WhereTheyDoNotFitTheHostGathers) {
  const spec::TrainOptions options = NodeJob(spec::Architecture::kGcn);
  const uint64_t steps = StepsOf(options), table = TableBytes();
  EXPECT_THAT(std::string(Make(options, steps + table)->reading()), HasSubstr("lie on the device"));
  EXPECT_THAT(std::string(Make(options, steps + table - 1)->reading()), IsEmpty());
  EXPECT_THAT(std::string(Make(options, 1)->reading()), IsEmpty());
}

// In these cases, the device has no room for a single row.
TEST_F(FeatureTableTest, MemoryOfTheHostIsPinnedAsFarAsThereIsSome) {
  const spec::TrainOptions options = NodeJob(spec::Architecture::kGcn);
  const auto is_pinned = [&](const Host& host) {
    const auto task = Make(options, StepsOf(options), true, host);
    return absl::StrContains(AbslView(task->reading()), "pinned memory of the host");
  };
  const auto model = NodeModelFor(options, summary(), kNoLimits, "spec.");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto taken = [&](uint64_t process) {
    return NodeJobBytes(options, *model, summary(),
                        {.process = process, .device = StepsOf(options), .records = false}) +
           summary().adjacency_bytes;
  };
  EXPECT_TRUE(is_pinned({.allocate_pinned = AllocatePinned}));
  EXPECT_FALSE(is_pinned({.allocate_pinned = [](int64_t, int64_t) { return std::nullopt; }}));
  std::array<int, 2> seen{};
  for (uint64_t process = TableBytes(); process < 100 * TableBytes() + 10'000'000; process += process / 8) {
    const bool fits = PinnableBytes(process, taken(process)) >= TableBytes();
    EXPECT_EQ(is_pinned({.allocate_pinned = AllocatePinned, .process = process}), fits) << process;
    ++seen[fits ? 1 : 0];
  }
  EXPECT_THAT(seen, Each(Gt(3)));
  // Others may have taken memory since, so a twentieth of the limit stays free.
  const uint64_t limit = 1'000'000'000, left = limit / 20 + taken(kNoLimits.process) + TableBytes();
  for (const bool enough : {true, false}) {
    data::RowCaches rows({.memory_left = [&] { return MemoryLeft{.limit = limit, .left = enough ? left : left - 1}; }});
    EXPECT_EQ(is_pinned({.allocate_pinned = AllocatePinned, .rows = &rows}), enough);
  }
}

// The means with which GraphSAGE begins equal those that the host would make. The stand-in has no operator for them,
// so the CPU is the device here.
TEST_F(FeatureTableTest, MeansAreMadeWhereTheTableLies) {
  const spec::TrainOptions options = NodeJob(spec::Architecture::kSage);
  ASSERT_TRUE(SamplingOf(options, Mode::kTrain, summary()).last_hop_apart);
  const auto on_host = Make(options, uint64_t{1} << 40, false, {}, at::kCPU);
  const auto task = Make(options, uint64_t{1} << 40, true, {}, at::kCPU);
  EXPECT_THAT(std::string(on_host->reading()), IsEmpty());
  EXPECT_THAT(std::string(task->reading()), HasSubstr("lie on the device, which gathers them"));
  const auto compare = [&](BatchStream& one, BatchStream& other) {
    int64_t batches = 0;
    for (;; ++batches) {
      const auto a = one.Next(), b = other.Next();
      ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
      ASSERT_EQ(*a == nullptr, *b == nullptr);
      if (*a == nullptr) break;
      // Both blocks have the same real rows with different padding. Real rows have keys of at least 0.
      const nn::NodeBlock got = NodeBlockOf(**(*a)->PadTo((*a)->least_padded(), 0)),
                          want = NodeBlockOf(**(*b)->PadTo((*b)->least_padded(), 0));
      const auto real = [](const nn::NodeBlock& block) {
        return block.features.index_select(0, at::nonzero(block.row_keys.ge(0)).squeeze(1));
      };
      EXPECT_TRUE(real(got).allclose(real(want), 1e-6, 1e-6));
      EXPECT_EQ(
          got.features.index_select(0, at::nonzero(got.row_keys.lt(0)).squeeze(1)).count_nonzero().item<int64_t>(), 0);
      EXPECT_FALSE(got.feature_offsets.defined() || got.feature_columns.defined());
      EXPECT_EQ(got.row_ends.size(), want.row_ends.size());
    }
    EXPECT_GT(batches, 0);
  };
  compare(*task->TrainBatches(0, 0), *on_host->TrainBatches(0, 0));
  compare(*task->EvalBatches(data::Split::kValid), *on_host->EvalBatches(data::Split::kValid));
}

// The host would hold some of the rows, and copying a mean takes fewer bytes than copying its rows.
TEST_F(FeatureTableTest, MeansAreMadeOnTheHostUnlessAllRowsLieOnTheDevice) {
  const spec::TrainOptions options = NodeJob(spec::Architecture::kSage);
  const uint64_t wanted = StepsOf(options) + MeansBytes(options, summary()) + TableBytes();
  EXPECT_GT(MeansBytes(options, summary()), 0U);
  EXPECT_THAT(std::string(Make(options, wanted)->reading()), HasSubstr("lie on the device"));
  const auto task = Make(options, wanted - 1, true, {.allocate_pinned = AllocatePinned});
  EXPECT_THAT(std::string(task->reading()), IsEmpty());
  EXPECT_EQ(MeansBytes(NodeJob(spec::Architecture::kGcn), summary()), 0U);
}

}  // namespace
}  // namespace permafrost::train
