#include "data/batching/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/ogb_folder.h"
#include "data/sampling/epoch_order.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BatcherTest : public ::testing::Test {
 protected:
  // Inverse edges are not added, so that the edges are few enough to read.
  BatcherTest()
      : set_(MakeStore(temp_.path(), SmallSet(), {.source = {}, .inverse_edges = InverseEdges::kKeep, .split = {}})) {
    auto batcher = Batcher::Create(set_);
    EXPECT_TRUE(batcher.ok()) << batcher.status();
    batcher_ = *std::move(batcher);
  }
  TempDir temp_;
  std::shared_ptr<const GraphSet> set_;
  std::unique_ptr<Batcher> batcher_;
};

TEST_F(BatcherTest, GathersGraphsInTheOrderAsked) {
  const std::vector<uint32_t> graphs = {2, 0};
  const BatchShape real = batcher_->ShapeOf(graphs);
  EXPECT_EQ(real, (BatchShape{4, 5, 2}));
  PaddedBatch batch;
  ASSERT_TRUE(batcher_->Assemble(graphs, Batcher::LeastPadded(real), batch).ok());
  EXPECT_EQ(batch.real, real);
  EXPECT_EQ(batch.padded, (BatchShape{5, 5, 3}));
  EXPECT_THAT(batch.node_ints, ElementsAre(5, 50, 1, 10, 2, 20, 3, 30, 0, 0));
  EXPECT_THAT(batch.node_floats, IsEmpty());
  EXPECT_THAT(batch.edge_ints, IsEmpty());
  EXPECT_THAT(batch.edge_floats, ElementsAre(4, 0.5f, 2, 1, 3));
  EXPECT_THAT(batch.edge_source, ElementsAre(0, 3, 3, 1, 2));
  EXPECT_THAT(batch.edge_target, ElementsAre(0, 1, 1, 2, 3));
  EXPECT_THAT(batch.graph_of_node, ElementsAre(0, 1, 1, 1, 2));
  EXPECT_THAT(batch.graph_ids, ElementsAre(2, 0));
  ASSERT_EQ(batch.labels.size(), 3u);
  EXPECT_EQ(batch.labels[0], -2.0f);
  EXPECT_EQ(batch.labels[1], 1.5f);
  EXPECT_TRUE(std::isnan(batch.labels[2]));
}

// Graph 0 has three nodes, graph 2 has one, and graph 1 has the rest.
TEST_F(BatcherTest, KeysAreThePlacesInTheBatchOfAllRanks) {
  const auto batcher = Batcher::Create(set_, {.keys = true});
  ASSERT_TRUE(batcher.ok()) << batcher.status();
  const std::vector<uint32_t> share = {2, 0}, whole = {0, 1, 2}, places = {2, 0};
  const int64_t before_last = batcher_->ShapeOf(std::vector<uint32_t>{0, 1}).nodes;
  PaddedBatch batch;
  ASSERT_TRUE((*batcher)->Assemble(share, Batcher::LeastPadded(batcher_->ShapeOf(share)), batch).ok());
  EXPECT_THAT(batch.node_keys, ElementsAre(0, 1, 2, 3, 0)) << "a row's own place, and 0 for padding";
  EXPECT_THAT(batch.graph_keys, ElementsAre(0, 1, 0));
  (*batcher)->SetKeys(whole, places, batch);
  EXPECT_THAT(batch.node_keys, ElementsAre(before_last, 0, 1, 2, 0));
  EXPECT_THAT(batch.graph_keys, ElementsAre(2, 0, 0));
  ASSERT_TRUE((*batcher)->Pad({7, 9, 4}, batch).ok());
  EXPECT_THAT(batch.node_keys, ElementsAre(before_last, 0, 1, 2, 0, 0, 0));
  EXPECT_THAT(batch.graph_keys, ElementsAre(2, 0, 0, 0));
}

// Kernels read the buffers as tensors, and libtorch's own tensors begin at a cache line.
TEST_F(BatcherTest, BuffersBeginAtACacheLine) {
  const std::vector<uint32_t> graphs = {2, 0};
  PaddedBatch batch;
  for (const BatchShape& shape : {BatchShape{5, 5, 3}, {6, 7, 4}, {50, 70, 40}, {700, 900, 80}}) {
    ASSERT_TRUE(batcher_->Assemble(graphs, shape, batch).ok());
    const auto offset = [](const auto& values) { return reinterpret_cast<uintptr_t>(values.data()) % 64; };
    EXPECT_THAT(std::vector({offset(batch.node_ints), offset(batch.edge_floats), offset(batch.edge_source),
                             offset(batch.edge_target), offset(batch.graph_of_node), offset(batch.labels)}),
                ::testing::Each(0U));
  }
}

TEST_F(BatcherTest, PaddingFillsEveryRow) {
  const std::vector<uint32_t> graphs = {1};
  PaddedBatch batch;
  // A larger batch comes first. None of its rows may remain in the smaller one.
  const std::vector<uint32_t> all = {0, 1, 2};
  ASSERT_TRUE(batcher_->Assemble(all, {9, 9, 9}, batch).ok());
  const auto* memory = batch.node_ints.data();
  ASSERT_TRUE(batcher_->Assemble(graphs, {4, 3, 4}, batch).ok());
  EXPECT_EQ(batch.node_ints.data(), memory) << "memory is reused";
  EXPECT_THAT(batch.node_ints, ElementsAre(4, 40, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.edge_floats, ElementsAre(0, 0, 0));
  EXPECT_THAT(batch.edge_source, ElementsAre(3, 3, 3));
  EXPECT_THAT(batch.edge_target, ElementsAre(3, 3, 3));
  EXPECT_THAT(batch.graph_of_node, ElementsAre(0, 3, 3, 3));
  EXPECT_TRUE(std::all_of(batch.labels.begin(), batch.labels.end(), [](float y) { return std::isnan(y); }));
  EXPECT_EQ(batch.labels.size(), 4u);
}

TEST_F(BatcherTest, WhatDoesNotFitIsRefused) {
  const std::vector<uint32_t> graphs = {0};  // it has 3 nodes and 4 edges
  PaddedBatch batch;
  const struct {
    const char* why;
    BatchShape padded;
    bool ok;
  } kCases[] = {
      {"the least", {4, 4, 2}, true},         {"no padding node", {3, 4, 2}, false},
      {"no padding graph", {4, 4, 1}, false}, {"an edge too few", {4, 3, 2}, false},
      {"negative", {-1, -1, -1}, false},
  };
  for (const auto& c : kCases) {
    const absl::Status status = batcher_->Assemble(graphs, c.padded, batch);
    EXPECT_EQ(status.ok(), c.ok) << c.why;
    if (!c.ok) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
      EXPECT_THAT(std::string(status.message()), HasSubstr("does not hold (4 nodes, 4 edges, 2 graphs)"));
    }
  }
  const std::vector<uint32_t> outside = {3};
  EXPECT_EQ(batcher_->Assemble(outside, {9, 9, 9}, batch).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(batcher_->Assemble({}, {1, 0, 1}, batch).ok()) << "an empty batch is all padding";
}

// No graphs of the set together have these shapes.
TEST_F(BatcherTest, ComposesABatchOfAnyShape) {
  const std::vector<uint32_t> graphs = {0, 2};
  for (const BatchShape padded : {BatchShape{12, 17, 5}, BatchShape{2, 0, 2}, BatchShape{9, 3, 9}}) {
    SCOPED_TRACE(ToString(padded));
    PaddedBatch batch, other;
    ASSERT_TRUE(batcher_->Compose(graphs, padded, /*seed=*/1, batch).ok());
    EXPECT_EQ(batch.padded, padded);
    EXPECT_EQ(Batcher::LeastPadded(batch.real), padded);
    ASSERT_EQ(std::ssize(batch.edge_source), padded.edges);
    ASSERT_EQ(std::ssize(batch.graph_of_node), padded.nodes);
    EXPECT_TRUE(std::ranges::is_sorted(batch.edge_target));
    EXPECT_TRUE(std::ranges::is_sorted(batch.graph_of_node));
    EXPECT_EQ(batch.graph_of_node.back(), padded.graphs - 1) << "padding";
    for (int64_t edge = 0; edge < padded.edges; ++edge) {
      const auto e = static_cast<size_t>(edge);
      ASSERT_LT(batch.edge_source[e], padded.nodes - 1);
      const auto graph_of = [&](int64_t node) { return batch.graph_of_node[static_cast<size_t>(node)]; };
      EXPECT_EQ(graph_of(batch.edge_source[e]), graph_of(batch.edge_target[e])) << "an edge leaves its graph";
    }
    for (int64_t graph = 0; graph < padded.graphs; ++graph) {
      EXPECT_TRUE(std::ranges::find(batch.graph_of_node, graph) != batch.graph_of_node.end()) << graph;
      EXPECT_EQ(std::isnan(batch.labels[static_cast<size_t>(graph)]), graph == padded.graphs - 1) << graph;
    }
    for (int64_t node = 0; node + 1 < padded.nodes; ++node) {
      const int64_t x = batch.node_ints[static_cast<size_t>(2 * node)];
      EXPECT_EQ(batch.node_ints[static_cast<size_t>(2 * node + 1)], 10 * x) << "a row is one of the set's";
    }
    ASSERT_TRUE(batcher_->Compose(graphs, padded, /*seed=*/1, other).ok());
    EXPECT_EQ(batch.edge_source, other.edge_source);
    EXPECT_EQ(batch.node_ints, other.node_ints);
  }
  PaddedBatch batch;
  EXPECT_FALSE(batcher_->Compose({}, {5, 5, 3}, 1, batch).ok());
  EXPECT_FALSE(batcher_->Compose(graphs, {1, 5, 3}, 1, batch).ok());
}

TEST_F(BatcherTest, PositionsGoWithTheirNodes) {
  const std::vector<uint32_t> graphs = {2, 0};
  PaddedBatch batch;
  ASSERT_TRUE(batcher_->Assemble(graphs, {5, 5, 3}, batch).ok());
  EXPECT_THAT(batch.positions, IsEmpty()) << "the set has none";

  TempDir temp;
  const auto set = MakeStore(temp.path(), PlacedSet());
  const auto placed = Batcher::Create(set);
  ASSERT_TRUE(placed.ok()) << placed.status();
  ASSERT_TRUE((*placed)->Assemble(std::vector<uint32_t>{0, 1, 2}, {9, 20, 4}, batch).ok());
  ASSERT_TRUE((*placed)->Assemble(graphs, {6, 20, 3}, batch).ok());
  EXPECT_THAT(batch.positions,
              ElementsAre(-9, 1000, 0.25F, 0, 0, 1, 2, 3, 1.5F, -1, 0, 1, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0));

  ASSERT_TRUE((*placed)->Compose(graphs, {12, 17, 5}, /*seed=*/1, batch).ok());
  const std::vector<float> of_set = ToVector(set->positions()->floats);
  for (size_t node = 0; node < 11; ++node) {
    const auto row = static_cast<size_t>(batch.node_ints[2 * node] - 1);  // the node's row in the set
    for (size_t c = 0; c < 4; ++c) EXPECT_EQ(batch.positions[4 * node + c], of_set[4 * row + c]) << node;
  }
  EXPECT_THAT(std::vector<float>(batch.positions.begin() + 44, batch.positions.end()), ElementsAre(0, 0, 0, 0));
}

TEST_F(BatcherTest, DamageIsToldAtCreation) {
  const auto path = temp_.path() / "store" / GraphSet::kFileName;
  std::string bytes = *ReadFile(path);
  const float label = 1.5f;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&label), sizeof label));
  ASSERT_NE(at, bytes.npos);
  bytes[at] ^= 1;
  WriteText(path, bytes);
  const auto set = GraphSet::Open(temp_.path() / "store");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(Batcher::Create(*set).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Batcher, AnEpochOfZinc) {
  const auto source = SharedGraphs("zinc12k");
  if (source.empty()) GTEST_SKIP() << "the shared data set zinc12k is not here";
  TempDir temp;
  ASSERT_TRUE(ImportInto(temp.path() / "store", {.source = source, .split = {}}).ok());
  const auto batcher = Batcher::Create(*GraphSet::Open(temp.path() / "store"));
  ASSERT_TRUE(batcher.ok()) << batcher.status();
  const auto train = (*batcher)->split(Split::kTrain);
  const EpochOrder epochs(train, {.batch_size = 32, .seed = 1});
  const auto order = epochs.Of(0);
  PaddedBatch batch;
  BatchShape sum;
  double label_sum = 0;
  for (int64_t i = 0; i < epochs.batches_per_epoch(); ++i) {
    const auto graphs = epochs.Batch(order, i);
    const BatchShape shape = (*batcher)->ShapeOf(graphs);
    ASSERT_TRUE((*batcher)->Assemble(graphs, Batcher::LeastPadded(shape), batch).ok());
    sum = {sum.nodes + shape.nodes, sum.edges + shape.edges, sum.graphs + shape.graphs};
    for (int64_t g = 0; g < shape.graphs; ++g) label_sum += batch.labels[static_cast<size_t>(g)];
    EXPECT_TRUE(std::is_sorted(batch.edge_target.begin(), batch.edge_target.end()));
    EXPECT_TRUE(std::is_sorted(batch.graph_of_node.begin(), batch.graph_of_node.end()));
    for (size_t e = 0; e < batch.edge_source.size(); ++e) {
      // Both ends must lie in one graph.
      ASSERT_EQ(batch.graph_of_node[static_cast<size_t>(batch.edge_source[e])],
                batch.graph_of_node[static_cast<size_t>(batch.edge_target[e])]);
    }
  }
  const SizeStatistics& want = (*batcher)->summary().splits[0];
  EXPECT_EQ(sum, (BatchShape{want.nodes, want.edges, want.graphs}));
  EXPECT_NEAR(label_sum / 10000, 0.0183, 5e-5);
}

// Truncating a store while a job reads it fails that job and nothing else.
TEST_F(BatcherTest, AStoreCutShortIsDataLoss) {
  const std::filesystem::path store = temp_.path() / "store" / GraphSet::kFileName;
  const std::vector<uint32_t> graphs = {2, 0};
  const BatchShape padded = Batcher::LeastPadded(batcher_->ShapeOf(graphs));
  PaddedBatch batch;
  ASSERT_TRUE(batcher_->Assemble(graphs, padded, batch).ok());
  std::filesystem::resize_file(store, 0);
  for (const BatchShape& shape : {padded, BatchShape{1000, 1000, 1000}}) {
    const absl::Status status = batcher_->Assemble(graphs, shape, batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cut short while it was in use"));
  }
  EXPECT_EQ(set_->labels().status().code(), absl::StatusCode::kOk) << "verified before";
  EXPECT_EQ(set_->CheckIntact().code(), absl::StatusCode::kDataLoss);
}

// After a write to the file, verified offsets may hold anything. No row outside the set may be read or written.
TEST_F(BatcherTest, OffsetsWrittenOverAreDataLoss) {
  const std::filesystem::path store = temp_.path() / "store" / GraphSet::kFileName;
  const std::vector<uint32_t> graphs = {2, 0, 1};
  const BatchShape padded = Batcher::LeastPadded(batcher_->ShapeOf(graphs));
  {
    std::fstream file(store, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(0, std::ios::end);
    const std::string garbage(static_cast<size_t>(file.tellp()), '\xa5');
    file.seekp(0);
    file << garbage;
  }
  std::filesystem::last_write_time(store, std::filesystem::last_write_time(store) + std::chrono::seconds(1));
  PaddedBatch batch;
  for (const BatchShape& shape : {padded, BatchShape{1000, 1000, 1000}}) {
    EXPECT_EQ(batcher_->Assemble(graphs, shape, batch).code(), absl::StatusCode::kDataLoss);
  }
  // The ids of a split are read from the file, too.
  const auto split = batcher_->split(Split::kTrain);
  ASSERT_FALSE(split.empty());
  EXPECT_EQ(batcher_->ShapeOf(split).nodes, 0);
  EXPECT_EQ(batcher_->Assemble(split, padded, batch).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace permafrost::data
