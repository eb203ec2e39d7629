#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "data/batching/block_batch.h"
#include "data/batching/block_graphs.h"

namespace permafrost::data {
namespace {

BlockBatch Sampled(const std::shared_ptr<MemoryGraph>& graph, int64_t seeds) {
  auto batcher = BlockBatcher::Create(
      graph, {.sampling = {.fan_outs = {4, 3}, .seed = 2}, .edge_weights = true, .positions = true, .threads = 1});
  EXPECT_TRUE(batcher.ok()) << batcher.status();
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < static_cast<NodeId>(seeds); ++node) nodes.push_back(node * 7 % kNodes);
  SampledSubgraph subgraph;
  BlockBatch batch;
  EXPECT_TRUE((*batcher)->Sample(nodes, 1, nullptr, subgraph).ok());
  BlockSizes least = *(*batcher)->SizesOf(subgraph);
  ++least.nodes.back();
  EXPECT_TRUE((*batcher)->Gather(subgraph, least, batch).ok());
  return batch;
}

TEST(ComposeBlock, HasExactlyTheShapeAndRealRows) {
  for (const Kind kind : {Kind::kNone, Kind::kDense, Kind::kSparse, Kind::kSparseOnes}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const BlockBatch from = Sampled(GraphWith(kind), 20);
    for (const BatchShape shape : {BatchShape{2, 1, 1}, {3, 0, 2}, {50, 90, 20}, {2000, 9000, 500}, {51, 200, 50}}) {
      SCOPED_TRACE(ToString(shape));
      const BlockBatch made = ComposeBlock(from, shape, 5, /*weighted=*/true);
      EXPECT_EQ(made.padded.shape(), shape);
      EXPECT_EQ(made.real.total_nodes(), shape.nodes - 1);
      EXPECT_EQ(made.real.edges, shape.edges);
      const auto nodes = static_cast<size_t>(shape.nodes) - 1;
      ASSERT_EQ(made.offsets.size(), nodes + 1);
      EXPECT_EQ(made.offsets.front(), 0);
      EXPECT_EQ(made.offsets.back(), shape.edges);
      EXPECT_TRUE(std::ranges::is_sorted(made.offsets));
      for (size_t row = 0; row < nodes; ++row) {
        for (int64_t e = made.offsets[row]; e < made.offsets[row + 1]; ++e) {
          const int64_t source = made.sources[static_cast<size_t>(e)];
          EXPECT_TRUE(source >= 0 && source < shape.nodes - 1);
          EXPECT_TRUE(nodes == 1 || source != static_cast<int64_t>(row)) << "a self-loop";
        }
      }
      EXPECT_EQ(std::ssize(made.edge_weights), shape.edges);
      ASSERT_EQ(std::ssize(made.positions), shape.nodes * kPositionColumns);
      for (size_t row = 0; row < nodes; ++row) EXPECT_EQ(made.positions[2 * row], PositionOf(made.nodes[row])[0]);
      EXPECT_EQ(made.positions.back(), 0) << "the padding row";
      EXPECT_EQ(std::ssize(made.labels), 2 * shape.graphs);
      EXPECT_TRUE(std::ranges::none_of(std::span(made.labels).first(1), [](float label) { return std::isnan(label); }));
      if (kind == Kind::kDense) {
        ASSERT_EQ(std::ssize(made.features), shape.nodes * kWidth);
        for (size_t row = 0; row < nodes; ++row) EXPECT_EQ(made.features[row * kWidth], ValueOf(made.nodes[row], 0));
        EXPECT_EQ(made.features.back(), 0) << "the padding row";
      }
      if (kind == Kind::kSparse || kind == Kind::kSparseOnes) {
        ASSERT_EQ(std::ssize(made.feature_offsets), shape.nodes + 1);
        EXPECT_EQ(made.feature_offsets.back(), std::ssize(made.feature_columns));
        EXPECT_EQ(made.feature_values.size(), kind == Kind::kSparse ? made.feature_columns.size() : 0);
        for (size_t row = 0; row < nodes; ++row) {
          EXPECT_EQ(made.feature_offsets[row + 1] - made.feature_offsets[row], made.nodes[row] % 4);
        }
      }
    }
  }
}

TEST(ComposeBlock, AnotherSeedMakesAnotherBlock) {
  const BlockBatch from = Sampled(GraphWith(Kind::kDense), 20);
  const BatchShape shape{40, 80, 10};
  EXPECT_EQ(ComposeBlock(from, shape, 1, false).sources, ComposeBlock(from, shape, 1, false).sources);
  EXPECT_NE(ComposeBlock(from, shape, 1, false).sources, ComposeBlock(from, shape, 2, false).sources);
  EXPECT_NE(ComposeBlock(from, shape, 1, false).features, ComposeBlock(from, shape, 2, false).features);
}

}  // namespace
}  // namespace permafrost::data
