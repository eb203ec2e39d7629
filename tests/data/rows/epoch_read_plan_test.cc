#include "data/rows/read_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "base/status.h"
#include "data/graph_fixture.h"
#include "data/memory_graph.h"
#include "data/rows/frame_table.h"
#include "data/rows/row_cache.h"
#include "data/sampling/epoch_order.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPlanNodes = 2000;
constexpr uint64_t kPlanRowBytes = 4000;

bool GoOn() { return true; }

uint64_t MemoryOf(uint64_t rows, uint64_t row_bytes = kPlanRowBytes) {
  return kPlanNodes * RowCache::kBytesPerRow + rows * FrameTable::FrameBytes(row_bytes);
}

class DatasetPlanTest : public testing::Test {
 protected:
  void SetUp() override {
    for (NodeId node = 0; node < kPlanNodes; node += 2) training_.push_back(node);
    graph_->view().splits[0] = graph_->Keep(training_);
    graph_->view().node_features =
        DenseFeatures{.type = DataType::kFloat32, .width = 1000, .groups = {.rows = 1, .bytes = 4096}};
  }
  absl::StatusOr<ReadPlan> Plan(int64_t max_edges = kMaxPlannedEdges) {
    return PlanDatasetOn(*graph_, stored_, query_, rates_, GoOn, max_edges);
  }
  ReadPlan MustPlan(int64_t max_edges = kMaxPlannedEdges) {
    absl::StatusOr<ReadPlan> plan = Plan(max_edges);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *plan : ReadPlan{.readings = {{}}};
  }
  std::vector<std::string> Fields() {
    std::vector<std::string> fields;
    for (const FieldViolation& v : GetViolations(Plan().status())) fields.push_back(v.field);
    return fields;
  }

  const std::shared_ptr<MemoryGraph> graph_ = RandomGraph(kPlanNodes, 20'000, 3);
  std::vector<NodeId> training_;
  StoredRows stored_{.path = "graph.pfg",
                     .offset = 8192,
                     .bytes = kPlanNodes * 4096,
                     .rows = kPlanNodes,
                     .row_bytes = kPlanRowBytes,
                     .groups = {.rows = 1, .bytes = 4096}};
  ReadPlanQuery query_{.memory_bytes = MemoryOf(500), .batch_size = 64, .sampling = {.fan_outs = {5, 3}, .seed = 11}};
  DiskRates rates_{.seconds_per_read = 1e-5, .seconds_per_byte = 1e-9};  // gaps of up to two pages are read
};

TEST_F(DatasetPlanTest, CountsWhatTheEpochsBatchesMiss) {
  const ReadPlan plan = MustPlan();

  std::vector<float> wanted(kPlanNodes);
  ASSERT_TRUE(AddExpectedDraws(graph_->view(), training_, 64, query_.sampling.fan_outs, GoOn, wanted).ok());
  const std::vector<uint32_t> ranks = RanksOf(wanted);
  const auto sampler = *NeighborSampler::Create(graph_->view(), query_.sampling, 1);
  const EpochOrder order(training_, {.batch_size = 64, .seed = 11});
  const EpochBatches epoch = order.Of(0);
  std::set<NodeId> distinct;
  size_t asked = 0, missed = 0, largest = 0, reads = 0, pages = 0;
  for (int64_t b = 0; b < order.batches_per_epoch(); ++b) {
    SampledSubgraph sample;
    ASSERT_TRUE(sampler->Sample(order.Batch(epoch, b), static_cast<uint64_t>(b), false, nullptr, sample).ok());
    const std::set<NodeId> rows(sample.nodes.begin(), sample.nodes.end());
    distinct.insert(rows.begin(), rows.end());
    asked += rows.size();
    largest = std::max(largest, rows.size());
    // Each row takes one page. A read goes on across one or two unneeded pages, up to sixteen pages in all.
    int64_t first = -100, last = -100;
    for (const NodeId row : rows) {
      if (ranks[row] < 500) continue;
      ++missed;
      if (row - last > 3 || row - first >= 16) {
        ++reads;
        first = last = row;
        ++pages;
      } else {
        pages += static_cast<size_t>(row - last);
        last = row;
      }
    }
  }
  EXPECT_EQ(plan.nodes, kPlanNodes);
  EXPECT_EQ(plan.training_nodes, 1000U);
  EXPECT_EQ(plan.batches, 16);
  EXPECT_EQ(plan.sampled_batches, 16);
  EXPECT_EQ(plan.largest_rows, static_cast<int64_t>(largest));
  EXPECT_EQ(plan.distinct_rows, static_cast<int64_t>(distinct.size()));
  EXPECT_NEAR(plan.rows_an_epoch, static_cast<double>(asked), 1e-6);
  EXPECT_NEAR(plan.mean_rows, static_cast<double>(asked) / 16, 1e-9);

  ASSERT_EQ(plan.readings.size(), 4U);
  const PlannedReading& asked_for = plan.readings[0];
  EXPECT_EQ(asked_for.what, ReadPlanCase::kAsAsked);
  EXPECT_EQ(asked_for.held_rows, 500U);
  EXPECT_EQ(asked_for.most_memory, MemoryOf(kPlanNodes));
  EXPECT_EQ(asked_for.pages_per_row, 1);
  EXPECT_NEAR(asked_for.hit_rate, 1 - static_cast<double>(missed) / static_cast<double>(asked), 1e-12);
  EXPECT_GT(asked_for.hit_rate, 0.25) << "more than a part of the rows drawn at random would serve";
  EXPECT_EQ(asked_for.reads, static_cast<double>(reads));
  EXPECT_EQ(asked_for.bytes, static_cast<double>(pages * 4096));
  EXPECT_EQ(asked_for.missed_bytes, static_cast<double>(missed * kPlanRowBytes));
  EXPECT_NEAR(asked_for.seconds, 1e-5 * asked_for.reads + 1e-9 * asked_for.bytes, 1e-12);
  EXPECT_NEAR(asked_for.packed_seconds, asked_for.missed_bytes * (1e-5 / 65536 + 1e-9), 1e-12);
  EXPECT_LT(asked_for.packed_seconds, asked_for.seconds);
  EXPECT_NEAR(asked_for.fill_seconds, 500 * (1e-5 + 4096e-9), 1e-12);
}

TEST_F(DatasetPlanTest, MoreMemoryAndSmallerRowsMissLess) {
  std::map<ReadPlanCase, PlannedReading> of;
  for (const PlannedReading& reading : MustPlan().readings) of[reading.what] = reading;
  ASSERT_EQ(of.size(), 4U);
  EXPECT_EQ(of[ReadPlanCase::kTwiceTheMemory].memory_bytes, 2 * query_.memory_bytes);
  EXPECT_GT(of[ReadPlanCase::kTwiceTheMemory].held_rows, 990U);
  EXPECT_EQ(of[ReadPlanCase::kBfloat16].row_bytes, 2000U);
  EXPECT_EQ(of[ReadPlanCase::kBfloat16].memory_bytes, query_.memory_bytes);
  EXPECT_GT(of[ReadPlanCase::kBfloat16].held_rows, 950U);
  EXPECT_GT(of[ReadPlanCase::kTwiceTheMemory].hit_rate, of[ReadPlanCase::kAsAsked].hit_rate);
  EXPECT_GT(of[ReadPlanCase::kBfloat16].hit_rate, of[ReadPlanCase::kAsAsked].hit_rate);
  EXPECT_GT(of[ReadPlanCase::kBfloat16TwiceTheMemory].hit_rate, of[ReadPlanCase::kBfloat16].hit_rate);
  EXPECT_LT(of[ReadPlanCase::kBfloat16].bytes, of[ReadPlanCase::kAsAsked].bytes);
  EXPECT_LT(of[ReadPlanCase::kBfloat16].most_memory, of[ReadPlanCase::kAsAsked].most_memory);
}

TEST_F(DatasetPlanTest, AllRowsInMemoryReadNothingAndNoneReadAll) {
  query_.memory_bytes = MemoryOf(kPlanNodes);
  const PlannedReading all = MustPlan().readings[0];
  EXPECT_EQ(all.held_rows, kPlanNodes);
  EXPECT_EQ(all.hit_rate, 1);
  EXPECT_EQ(all.reads + all.bytes + all.missed_bytes + all.seconds, 0);
  query_.memory_bytes = 1;
  const PlannedReading none = MustPlan().readings[0];
  EXPECT_EQ(none.held_rows, 0U);
  EXPECT_EQ(none.hit_rate, 0);
  EXPECT_GT(none.reads, 0);
}

TEST_F(DatasetPlanTest, NoOtherTypeWhereRowsAreAsSmall) {
  graph_->view().node_features = DenseFeatures{.type = DataType::kBfloat16, .width = 2000};
  EXPECT_EQ(MustPlan().readings.size(), 2U);
}

TEST_F(DatasetPlanTest, APartOfALongEpochIsScaledUp) {
  const ReadPlan whole = MustPlan(), part = MustPlan(3000);
  EXPECT_LT(part.sampled_batches, 16);
  EXPECT_GT(part.sampled_batches, 1);
  EXPECT_EQ(part.batches, 16);
  EXPECT_LT(part.distinct_rows, whole.distinct_rows) << "what was not sampled is not guessed";
  EXPECT_NEAR(part.rows_an_epoch / whole.rows_an_epoch, 1, 0.1);
  EXPECT_NEAR(part.readings[0].reads / whole.readings[0].reads, 1, 0.15);
  EXPECT_NEAR(part.readings[0].bytes / whole.readings[0].bytes, 1, 0.15);
  EXPECT_NEAR(part.readings[0].missed_bytes / whole.readings[0].missed_bytes, 1, 0.15);
  EXPECT_NEAR(part.readings[0].hit_rate, whole.readings[0].hit_rate, 0.05);
  EXPECT_EQ(MustPlan(0).sampled_batches, 1) << "never none";
}

TEST_F(DatasetPlanTest, BadQueriesNameTheirFields) {
  query_ = {.memory_bytes = 0, .batch_size = 65'537};
  EXPECT_THAT(Fields(), testing::ElementsAre("memory_bytes", "batch_size", "fan_outs"));
  query_ = {.memory_bytes = static_cast<uint64_t>(-5), .batch_size = -1, .sampling = {.fan_outs = {3}}};
  EXPECT_THAT(Fields(), testing::ElementsAre("memory_bytes", "batch_size"));
  EXPECT_THAT(std::string(Plan().status().message()), HasSubstr("memory_bytes: -5 is outside 1.."));
  query_ = {.memory_bytes = 1, .sampling = {.fan_outs = {0}}};
  EXPECT_THAT(Fields(), testing::ElementsAre("fan_outs"));
  query_ = {.memory_bytes = 1, .sampling = {.fan_outs = {3}, .weighted = true}};
  EXPECT_THAT(Fields(), testing::ElementsAre("weighted"));
}

TEST_F(DatasetPlanTest, ACallThatNobodyWaitsForStops) {
  int asked = 0;
  const absl::Status stopped =
      PlanDatasetOn(*graph_, stored_, query_, rates_, [&asked] { return ++asked < 5; }).status();
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
}

TEST_F(DatasetPlanTest, DamageIsTold) {
  graph_->intact = absl::DataLossError("graph.pfg: was written to");
  EXPECT_EQ(Plan().status(), graph_->intact);
  graph_->intact = absl::OkStatus();
  graph_->view().splits[0] = graph_->KeepDamaged(training_);
  EXPECT_TRUE(absl::IsDataLoss(Plan().status())) << Plan().status();
}

TEST_F(DatasetPlanTest, WhatHasNoRowsToReadSaysWhy) {
  const auto reason = [this] { return GetReason(PlannableRows(*graph_).status()).reason; };
  EXPECT_EQ(reason(), "DATASET_STORE_TOO_OLD") << "as a graph over vectors looks";
  graph_->view().node_features = SparseFeatures{.width = 5};
  EXPECT_EQ(reason(), "DATASET_WITHOUT_DENSE_FEATURES");
  graph_->view().node_features = std::monostate();
  EXPECT_EQ(reason(), "DATASET_WITHOUT_DENSE_FEATURES");
  EXPECT_TRUE(absl::IsFailedPrecondition(PlanDataset(*graph_, query_, GoOn).status()));
}

// Plans for a store on disk, including one whose rows fill less than a page.
TEST(ReadPlan, OfAStore) {
  for (const uint64_t nodes : {100, 9000}) {
    const TempDir dir;
    ASSERT_TRUE(MakeTestGraph({.nodes = nodes}).Write(dir.path()).ok());
    const auto graph = *Graph::Open(dir.path());
    const absl::StatusOr<ReadPlan> plan =
        PlanDataset(*graph, {.memory_bytes = nodes * 20, .batch_size = 10, .sampling = {.fan_outs = {3}}}, GoOn);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->batches, static_cast<int64_t>(((nodes + 2) / 3 + 9) / 10));
    EXPECT_GE(plan->mean_rows, 10 * 0.9);
    EXPECT_GT(plan->disk.SecondsFor(1, 4096), 0);
    EXPECT_EQ(plan->readings[0].row_bytes, 12U);
    EXPECT_GT(plan->readings[0].seconds, 0);
  }
}

TEST(ReadPlan, ASetWithoutTrainingNodesHasNone) {
  const TempDir dir;
  TestGraph graph = MakeTestGraph({});
  graph.Drop(SectionKind::kTrainNodes);
  graph.summary.split_nodes[0] = 0;
  ASSERT_TRUE(graph.Write(dir.path()).ok());
  const auto opened = Graph::Open(dir.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(GetReason(PlannableRows(**opened).status()).reason, "DATASET_WITHOUT_TRAINING_NODES");
}

TEST(RanksOf, TheMostWantedFirstAndEqualsInOrder) {
  EXPECT_THAT(RanksOf(std::vector<float>{1, 5, 1, 0, 9}), testing::ElementsAre(2, 1, 3, 4, 0));
  EXPECT_THAT(RanksOf({}), testing::IsEmpty());
}

}  // namespace
}  // namespace permafrost::data
