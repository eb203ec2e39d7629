// Batches in which each row comes with the mean of its neighbours' rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/batching/block_batch.h"
#include "data/batching/block_graphs.h"

namespace permafrost::data {
namespace {

using ::testing::HasSubstr;

// With its last hop apart, a batch holds what a step would compute from the whole block: each row, and bit for bit
// the mean of its neighbours' rows.
TEST(BlockMeans, RowsComeWithTheMeansOfTheirNeighbors) {
  for (const Kind kind : {Kind::kDense, Kind::kDenseInts}) {
    const auto graph = GraphWith(kind);
    const NeighborSamplingOptions sampling{.fan_outs = {4, 3, 5}, .seed = 2};
    NeighborSamplingOptions apart = sampling;
    apart.last_hop_apart = true;
    auto whole_batcher = BlockBatcher::Create(graph, {.sampling = sampling, .threads = 2});
    auto batcher = BlockBatcher::Create(graph, {.sampling = apart, .threads = 2});
    ASSERT_TRUE(whole_batcher.ok() && batcher.ok());
    SplitMix64 random(3, 4);
    SampledSubgraph whole, subgraph;
    BlockBatch batch;
    PageAdvisor advisor({});
    for (uint64_t stream = 0; stream < 8; ++stream) {
      std::vector<NodeId> seeds(stream * 11);
      std::iota(seeds.begin(), seeds.end(), static_cast<NodeId>(stream));
      ASSERT_TRUE((*whole_batcher)->Sample(seeds, stream, nullptr, whole).ok());
      ASSERT_TRUE((*batcher)->Sample(seeds, stream, &advisor, subgraph).ok());
      const BlockSizes sizes = *SizesOf(subgraph, graph->view());
      ASSERT_EQ(sizes.total_nodes(), whole.row_ends[2]);
      BlockSizes padded = Larger(sizes, random);
      if (padded.total_nodes() == 0) padded.nodes.back() = 1;
      ASSERT_TRUE((*batcher)->Gather(subgraph, padded, batch).ok());
      for (int pads = 0; pads < 3; ++pads) {
        const auto rows = static_cast<size_t>(padded.total_nodes());
        ASSERT_EQ(batch.features.size(), rows * 2 * kWidth);
        ASSERT_EQ(batch.sources.size(), static_cast<size_t>(padded.edges));
        ASSERT_EQ(batch.offsets.size(), rows - static_cast<size_t>(padded.nodes.back()) + 1);
        size_t at = 0, local = 0;
        for (size_t segment = 0; segment < padded.nodes.size(); ++segment) {
          for (int64_t r = 0; r < padded.nodes[segment]; ++r, ++at) {
            const bool real = r < sizes.nodes[segment];
            for (int64_t c = 0; c < kWidth; ++c) {
              float sum = 0;
              const int64_t first = real ? whole.offsets[local] : 0, last = real ? whole.offsets[local + 1] : 0;
              for (int64_t e = first; e < last; ++e) {
                sum += ValueOf(whole.nodes[static_cast<size_t>(whole.sources[static_cast<size_t>(e)])], c);
              }
              if (last > first + 1) sum *= 1.0f / static_cast<float>(last - first);
              const size_t begin = at * 2 * kWidth + static_cast<size_t>(c);
              ASSERT_EQ(batch.features[begin], sum) << at;
              ASSERT_EQ(batch.features[begin + kWidth], real ? ValueOf(whole.nodes[local], c) : 0) << at;
            }
            if (real) ++local;
          }
        }
        padded = Larger(sizes, random);
        if (padded.total_nodes() == 0) padded.nodes.back() = 1;
        ASSERT_TRUE((*batcher)->Pad(padded, batch).ok());
      }
    }
    EXPECT_GT(advisor.counters().wanted_pages, 0);
  }
}

// With features elsewhere, a batch names the rows that make up each mean: the same rows in the same order, at every
// padded size.
TEST(BlockMeans, WhereFeaturesAreElsewhereABatchSaysWhatTheMeansAreMadeOf) {
  const auto graph = GraphWith(Kind::kDense);
  const NeighborSamplingOptions sampling{.fan_outs = {4, 3, 5}, .last_hop_apart = true, .seed = 2};
  auto makes = BlockBatcher::Create(graph, {.sampling = sampling, .threads = 2});
  auto tells = BlockBatcher::Create(graph, {.sampling = sampling, .threads = 2, .features_elsewhere = true});
  ASSERT_TRUE(makes.ok() && tells.ok()) << tells.status();
  EXPECT_FALSE((*makes)->has_nonzeros());
  EXPECT_TRUE((*tells)->has_nonzeros());
  const auto value_of = [](int64_t row, int64_t column) {
    return row == static_cast<int64_t>(kNodes) ? 0 : ValueOf(static_cast<NodeId>(row), column);
  };
  const auto features_of = [&](const BlockBatch& batch) {
    AlignedVector<float> features;
    for (size_t row = 0; row < batch.feature_rows.size(); ++row) {
      const int64_t first = batch.feature_offsets[row], last = batch.feature_offsets[row + 1];
      for (int64_t c = 0; c < kWidth; ++c) {
        float sum = 0;
        for (int64_t e = first; e < last; ++e) sum += value_of(batch.neighbors[static_cast<size_t>(e)], c);
        features.push_back(last > first + 1 ? sum * (1.0f / static_cast<float>(last - first)) : sum);
      }
      for (int64_t c = 0; c < kWidth; ++c) features.push_back(value_of(batch.feature_rows[row], c));
    }
    return features;
  };
  SplitMix64 random(3, 4);
  SampledSubgraph subgraph;
  BlockBatch want, got;
  PageAdvisor advisor({});
  for (uint64_t stream = 0; stream < 8; ++stream) {
    std::vector<NodeId> seeds(1 + stream * 11);
    std::iota(seeds.begin(), seeds.end(), static_cast<NodeId>(stream));
    ASSERT_TRUE((*tells)->Sample(seeds, stream, &advisor, subgraph).ok());
    const BlockSizes sizes = *(*tells)->SizesOf(subgraph);
    EXPECT_EQ(sizes.nonzeros, subgraph.edges());
    EXPECT_EQ((*makes)->SizesOf(subgraph)->nonzeros, 0);
    BlockSizes padded = Larger(sizes, random);
    for (int pads = 0; pads < 3; ++pads) {
      if (pads == 0) {
        ASSERT_TRUE((*makes)->Gather(subgraph, padded, want).ok() && (*tells)->Gather(subgraph, padded, got).ok());
      } else {
        ASSERT_TRUE((*makes)->Pad(padded, want).ok() && (*tells)->Pad(padded, got).ok());
      }
      EXPECT_TRUE(got.features.empty());
      ASSERT_EQ(got.neighbors.size(), static_cast<size_t>(padded.nonzeros));
      EXPECT_EQ(features_of(got), want.features);
      EXPECT_EQ(got.sources, want.sources);
      EXPECT_EQ(got.offsets, want.offsets);
      // Neighbours that no row reaches must be valid, too.
      for (const NodeId row : got.neighbors) ASSERT_LE(row, kNodes);
      padded = Larger(sizes, random);
    }
  }
  BlockSizes small = got.real;
  --small.nonzeros;
  EXPECT_THAT((*tells)->Gather(subgraph, small, got).message(), HasSubstr("do not hold the block"));
  // A batch of one kind can be reused for the other kind.
  ASSERT_TRUE((*makes)->Gather(subgraph, want.padded, got).ok());
  EXPECT_TRUE(got.feature_rows.empty() && got.feature_offsets.empty() && got.neighbors.empty());
  EXPECT_EQ(got.features, want.features);
  subgraph.last_neighbors.back() = kNodes;
  EXPECT_THAT((*tells)->Gather(subgraph, want.padded, got).message(), HasSubstr("a node that the graph does not have"));
}

TEST(BlockMeans, MeansTakeDenseFeaturesWithoutEdgeWeights) {
  const NeighborSamplingOptions apart{.fan_outs = {4, 3}, .last_hop_apart = true};
  const auto refusal = [&](Kind kind, bool weights) {
    const auto created = BlockBatcher::Create(GraphWith(kind), {.sampling = apart, .edge_weights = weights});
    return created.ok() ? std::string() : std::string(created.status().message());
  };
  EXPECT_EQ(refusal(Kind::kDense, false), "");
  EXPECT_THAT(refusal(Kind::kSparse, false), HasSubstr("last_hop_apart: true, without dense features"));
  EXPECT_THAT(refusal(Kind::kDense, true), HasSubstr("last_hop_apart: true, with edge weights"));
  // A sample drawn without last_hop_apart is refused.
  const auto graph = GraphWith(Kind::kDense);
  auto with = BlockBatcher::Create(graph, {.sampling = apart});
  auto without = BlockBatcher::Create(graph, {.sampling = {.fan_outs = {4, 3}}});
  SampledSubgraph subgraph;
  BlockBatch batch;
  ASSERT_TRUE((*without)->Sample(std::vector<NodeId>{1, 2, 3}, 0, nullptr, subgraph).ok());
  EXPECT_THAT((*with)->Gather(subgraph, {.nodes = {9, 99}, .edges = 99}, batch).message(), HasSubstr("do not add up"));
}

TEST(BlockMeans, DamageIsDataLoss) {
  const auto graph = GraphWith(Kind::kDense);
  auto& dense = std::get<DenseFeatures>(graph->view().node_features);
  const auto gather = [&] {
    auto batcher = BlockBatcher::Create(graph, {.sampling = {.fan_outs = {4, 3}, .last_hop_apart = true}});
    SampledSubgraph subgraph;
    BlockBatch batch;
    EXPECT_TRUE((*batcher)->Sample(std::vector<NodeId>{1, 2, 3, 5}, 0, nullptr, subgraph).ok());
    return (*batcher)->Gather(subgraph, {.nodes = {9, 99}, .edges = 999}, batch);
  };
  ASSERT_TRUE(gather().ok());
  dense.bytes = graph->KeepDamaged(std::vector<std::byte>(dense.bytes.size()));
  EXPECT_EQ(gather().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace permafrost::data
