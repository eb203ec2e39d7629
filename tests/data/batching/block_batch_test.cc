#include "data/batching/block_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/status.h"
#include "data/batching/block_graphs.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool SameLabel(float a, float b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

// Checks everything that the header says of a padded batch against the subgraph and the graph.
void CheckBatch(const MemoryGraph& graph, const SampledSubgraph& s, const BlockSizes& padded, bool weights,
                const BlockBatch& batch) {
  const GraphView& view = graph.view();
  ASSERT_EQ(batch.padded, padded);
  // Kernels read the buffers as tensors, and libtorch's own tensors begin at a cache line.
  const auto offset = [](const auto& values) { return reinterpret_cast<uintptr_t>(values.data()) % 64; };
  EXPECT_THAT(std::vector({offset(batch.features), offset(batch.feature_offsets), offset(batch.feature_columns),
                           offset(batch.feature_values), offset(batch.offsets), offset(batch.sources),
                           offset(batch.edge_weights), offset(batch.labels)}),
              ::testing::Each(0U));
  ASSERT_EQ(batch.nodes, s.nodes);
  ASSERT_EQ(batch.real_seeds, s.row_ends[0]);
  const auto segments = padded.nodes.size();
  const auto rows = static_cast<size_t>(padded.total_nodes());
  // Maps each local row to its padded row and back. Padding rows map to -1.
  std::vector<int64_t> padded_row(s.nodes.size()), local_row(rows, -1);
  int64_t begin = 0, local = 0;
  for (size_t segment = 0; segment < segments; ++segment) {
    for (int64_t r = 0; local < s.row_ends[segment]; ++r, ++local) {
      padded_row[static_cast<size_t>(local)] = begin + r;
      local_row[static_cast<size_t>(begin + r)] = local;
    }
    begin += padded.nodes[segment];
  }

  const auto rows_with_edges = rows - static_cast<size_t>(padded.nodes.back());
  ASSERT_EQ(batch.offsets.size(), rows_with_edges + 1);
  ASSERT_EQ(batch.offsets[0], 0);
  ASSERT_EQ(batch.sources.size(), static_cast<size_t>(padded.edges));
  ASSERT_EQ(batch.edge_weights.size(), weights ? batch.sources.size() : 0);
  for (size_t row = 0; row < rows_with_edges; ++row) {
    const auto edges = batch.offsets[row + 1] - batch.offsets[row];
    if (local_row[row] < 0) {
      ASSERT_EQ(edges, 0) << "a padding row has an edge";
      continue;
    }
    const auto r = static_cast<size_t>(local_row[row]);
    ASSERT_EQ(edges, s.offsets[r + 1] - s.offsets[r]);
    for (int64_t e = 0; e < edges; ++e) {
      const auto at = static_cast<size_t>(batch.offsets[row] + e), from = static_cast<size_t>(s.offsets[r] + e);
      ASSERT_EQ(batch.sources[at], padded_row[static_cast<size_t>(s.sources[from])]);
      if (weights) {
        ASSERT_EQ(batch.edge_weights[at], view.in.weights[s.edge_places[from]]);
      }
    }
  }
  ASSERT_EQ(batch.offsets.back(), static_cast<int64_t>(s.sources.size()));
  for (size_t e = s.sources.size(); e < batch.sources.size(); ++e) {
    ASSERT_EQ(batch.sources[e], static_cast<int64_t>(rows) - 1);
    if (weights) {
      ASSERT_EQ(batch.edge_weights[e], 0);
    }
  }

  ASSERT_EQ(batch.labels.size(), static_cast<size_t>(padded.nodes[0] * 2));
  for (size_t row = 0; row < static_cast<size_t>(padded.nodes[0]); ++row) {
    for (size_t t = 0; t < 2; ++t) {
      const float want = local_row[row] < 0 ? kNan : view.labels[s.nodes[row] * 2 + t];
      ASSERT_TRUE(SameLabel(batch.labels[row * 2 + t], want));
    }
  }

  // In this test, batches with weights carry positions too.
  ASSERT_EQ(batch.positions.size(), weights ? rows * kPositionColumns : 0);
  for (size_t row = 0; row < rows && weights; ++row) {
    const bool real = local_row[row] >= 0;
    const auto want = real ? PositionOf(s.nodes[static_cast<size_t>(local_row[row])]) : std::array{0.0F, 0.0F};
    ASSERT_EQ((std::array{batch.positions[2 * row], batch.positions[2 * row + 1]}), want) << row;
  }

  if (std::holds_alternative<DenseFeatures>(view.node_features)) {
    ASSERT_EQ(batch.features.size(), rows * kWidth);
    for (size_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < kWidth; ++column) {
        const float want = local_row[row] < 0 ? 0 : ValueOf(s.nodes[static_cast<size_t>(local_row[row])], column);
        ASSERT_EQ(batch.features[row * kWidth + static_cast<size_t>(column)], want) << row;
      }
    }
  } else if (const auto* sparse = std::get_if<SparseFeatures>(&view.node_features)) {
    ASSERT_EQ(batch.feature_offsets.size(), rows + 1);
    ASSERT_EQ(batch.feature_offsets[0], 0);
    ASSERT_EQ(batch.feature_columns.size(), static_cast<size_t>(padded.nonzeros));
    ASSERT_EQ(batch.feature_values.size(), sparse->values.empty() ? 0 : batch.feature_columns.size());
    for (size_t row = 0; row < rows; ++row) {
      const auto entries = batch.feature_offsets[row + 1] - batch.feature_offsets[row];
      if (local_row[row] < 0) {
        ASSERT_EQ(entries, 0);
        continue;
      }
      const NodeId node = s.nodes[static_cast<size_t>(local_row[row])];
      ASSERT_EQ(entries, node % 4);
      for (int64_t e = 0; e < entries; ++e) {
        const auto at = static_cast<size_t>(batch.feature_offsets[row] + e);
        ASSERT_EQ(batch.feature_columns[at], node % 50 + e);
        if (!sparse->values.empty()) {
          ASSERT_EQ(batch.feature_values[at], ValueOf(node, e));
        }
      }
    }
    for (auto at = static_cast<size_t>(batch.feature_offsets.back()); at < batch.feature_columns.size(); ++at) {
      ASSERT_EQ(batch.feature_columns[at], 0);
    }
  } else {
    ASSERT_TRUE(batch.features.empty());
  }
}

TEST(BlockBatcher, EverySizeHoldsTheSameBlock) {
  for (const Kind kind : {Kind::kNone, Kind::kDense, Kind::kDenseInts, Kind::kSparse, Kind::kSparseOnes}) {
    for (const bool weights : {false, true}) {
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", weights " << weights);
      const auto graph = GraphWith(kind);
      const BlockBatcher::Options options{
          .sampling = {.fan_outs = {4, 3}, .seed = 2}, .edge_weights = weights, .positions = weights, .threads = 2};
      auto batcher = BlockBatcher::Create(graph, options);
      ASSERT_TRUE(batcher.ok()) << batcher.status();
      SplitMix64 random(3, 4);
      SampledSubgraph subgraph;
      BlockBatch batch;
      PageAdvisor advisor({});
      for (uint64_t stream = 0; stream < 12; ++stream) {
        std::vector<NodeId> seeds(kNodes);
        std::iota(seeds.begin(), seeds.end(), 0u);
        Shuffle(std::span(seeds), random);
        seeds.resize(random.Below(90));  // may be empty
        const absl::Status sampled = (*batcher)->Sample(seeds, stream, &advisor, subgraph);
        ASSERT_TRUE(sampled.ok()) << sampled;
        const auto sizes = SizesOf(subgraph, graph->view());
        ASSERT_TRUE(sizes.ok());
        ASSERT_EQ(sizes->total_nodes(), static_cast<int64_t>(subgraph.nodes.size()));
        BlockSizes padded = stream % 3 == 0 ? *sizes : Larger(*sizes, random);
        if (padded.total_nodes() == 0) padded.nodes.back() = 1;
        ASSERT_TRUE((*batcher)->Gather(subgraph, padded, batch).ok());
        ASSERT_EQ(batch.real, *sizes);
        ASSERT_NO_FATAL_FAILURE(CheckBatch(*graph, subgraph, padded, weights, batch));
        for (int i = 0; i < 4; ++i) {
          BlockSizes other = i == 2 ? *sizes : Larger(*sizes, random);
          if (other.total_nodes() == 0) other.nodes.back() = 1;
          ASSERT_TRUE((*batcher)->Pad(other, batch).ok());
          ASSERT_NO_FATAL_FAILURE(CheckBatch(*graph, subgraph, other, weights, batch));
        }
      }
      EXPECT_GT(advisor.counters().wanted_pages, 0);
    }
  }
}

// At every padded size, feature_rows names the rows that would have been gathered.
TEST(BlockBatcher, WhereFeaturesAreElsewhereABatchSaysItsRows) {
  const auto graph = GraphWith(Kind::kDense);
  const NeighborSamplingOptions sampling{.fan_outs = {4, 3}, .seed = 2};
  auto gathers = BlockBatcher::Create(graph, {.sampling = sampling, .threads = 2});
  auto tells = BlockBatcher::Create(graph, {.sampling = sampling, .threads = 2, .features_elsewhere = true});
  ASSERT_TRUE(gathers.ok() && tells.ok()) << tells.status();
  const auto features_of = [&](const BlockBatch& batch) {
    AlignedVector<float> features;
    for (const int64_t row : batch.feature_rows) {
      for (int64_t column = 0; column < kWidth; ++column) {
        features.push_back(row == static_cast<int64_t>(kNodes) ? 0 : ValueOf(static_cast<NodeId>(row), column));
      }
    }
    return features;
  };
  SplitMix64 random(3, 4);
  SampledSubgraph subgraph;
  BlockBatch want, got;
  PageAdvisor advisor({});
  for (uint64_t stream = 0; stream < 8; ++stream) {
    ASSERT_TRUE((*tells)->Sample(std::vector<NodeId>{1, 5, 9, 30, 31}, stream, &advisor, subgraph).ok());
    const BlockSizes sizes = *SizesOf(subgraph, graph->view());
    ASSERT_TRUE((*gathers)->Gather(subgraph, Larger(sizes, random), want).ok());
    ASSERT_TRUE((*tells)->Gather(subgraph, want.padded, got).ok());
    EXPECT_TRUE(got.features.empty());
    EXPECT_EQ(features_of(got), want.features);
    for (const BlockSizes& other : {sizes, Larger(sizes, random)}) {
      ASSERT_TRUE((*gathers)->Pad(other, want).ok() && (*tells)->Pad(other, got).ok());
      EXPECT_EQ(features_of(got), want.features);
      EXPECT_EQ(got.sources, want.sources);
    }
  }
  // A batch of one kind can be reused for the other kind.
  ASSERT_TRUE((*gathers)->Gather(subgraph, want.padded, got).ok());
  EXPECT_TRUE(got.feature_rows.empty());
  EXPECT_EQ(got.features, want.features);
  EXPECT_EQ(
      GetViolations(
          BlockBatcher::Create(GraphWith(Kind::kSparse), {.sampling = sampling, .features_elsewhere = true}).status())
          .front()
          .field,
      "features_elsewhere");
}

// The rows begin at any alignment and are written past the caches.
TEST(BlockBatcher, LargeBatchesHoldEveryValue) {
  constexpr uint64_t kRows = 1300;
  constexpr int64_t kColumns = 1003;
  const auto graph = RandomGraph(kRows, 9000, 6);
  std::vector<float> values(kRows * kColumns);
  std::iota(values.begin(), values.end(), 0.0f);
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  graph->view().node_features = DenseFeatures{DataType::kFloat32, kColumns, graph->Keep(std::move(bytes))};
  auto batcher = BlockBatcher::Create(graph, {.sampling = {.fan_outs = {3}}, .threads = 2});
  ASSERT_TRUE(batcher.ok());
  std::vector<NodeId> seeds(kRows);
  std::iota(seeds.begin(), seeds.end(), 0u);
  std::ranges::reverse(seeds);
  SampledSubgraph subgraph;
  BlockBatch batch;
  ASSERT_TRUE((*batcher)->Sample(seeds, 0, nullptr, subgraph).ok());
  BlockSizes padded = *SizesOf(subgraph, graph->view());
  padded.nodes.front() += 3;
  ASSERT_TRUE((*batcher)->Gather(subgraph, padded, batch).ok());
  ASSERT_EQ(batch.features.size(), (kRows + 3) * kColumns);
  for (size_t row = 0; row < kRows + 3; ++row) {
    const auto at = [&](const auto& all, size_t r) { return all.begin() + static_cast<int64_t>(r) * kColumns; };
    const auto begin = at(batch.features, row), end = at(batch.features, row + 1);
    if (row < kRows) {
      ASSERT_TRUE(std::equal(begin, end, at(values, seeds[row]))) << row;
    } else {
      ASSERT_EQ(std::count(begin, end, 0.0f), kColumns) << row;
    }
  }
}

TEST(BlockBatcher, SamplesTheSameWithAndWithoutAdvice) {
  const auto graph = GraphWith(Kind::kDense);
  std::vector<NodeId> seeds(100);
  std::iota(seeds.begin(), seeds.end(), 0u);
  for (const bool weighted : {false, true}) {
    auto batcher = BlockBatcher::Create(graph, {.sampling = {.fan_outs = {9, 70}, .weighted = weighted}});
    ASSERT_TRUE(batcher.ok());
    SampledSubgraph with, without;
    PageAdvisor advisor({});
    ASSERT_TRUE((*batcher)->Sample(seeds, 7, &advisor, with).ok());
    ASSERT_TRUE((*batcher)->Sample(seeds, 7, nullptr, without).ok());
    EXPECT_EQ(with.nodes, without.nodes);
    EXPECT_EQ(with.sources, without.sources);
  }
}

TEST(BlockBatcher, OnceWarmNothingMoves) {
  const auto graph = GraphWith(Kind::kSparse);
  auto batcher = BlockBatcher::Create(graph, {.sampling = {.fan_outs = {4, 3}}, .edge_weights = true});
  ASSERT_TRUE(batcher.ok());
  SampledSubgraph subgraph;
  BlockBatch batch;
  const std::vector<NodeId> seeds = {1, 2, 3, 4, 5};
  const BlockSizes padded{.nodes = {10, 40, 120}, .edges = 400, .nonzeros = 800};
  const auto where = [&](uint64_t stream) {
    EXPECT_TRUE((*batcher)->Sample(seeds, stream, nullptr, subgraph).ok());
    EXPECT_TRUE((*batcher)->Gather(subgraph, padded, batch).ok());
    return std::vector<const void*>{
        batch.feature_offsets.data(), batch.feature_columns.data(), batch.feature_values.data(), batch.offsets.data(),
        batch.sources.data(),         batch.edge_weights.data(),    batch.labels.data()};
  };
  const auto first = where(0);
  for (uint64_t stream = 1; stream < 20; ++stream) EXPECT_EQ(where(stream), first);
}

TEST(BlockBatcher, RefusesWhatDoesNotFit) {
  const auto graph = GraphWith(Kind::kSparse);
  auto batcher = BlockBatcher::Create(graph, {.sampling = {.fan_outs = {4, 3}}});
  ASSERT_TRUE(batcher.ok());
  SampledSubgraph subgraph;
  ASSERT_TRUE((*batcher)->Sample(std::vector<NodeId>{1, 2, 3}, 0, nullptr, subgraph).ok());
  const BlockSizes sizes = *SizesOf(subgraph, graph->view());
  BlockBatch batch;
  const struct {
    const char* why;
    void (*change)(BlockSizes&);
  } kCases[] = {
      {"a seed too few", [](BlockSizes& s) { --s.nodes[0]; }},
      {"room in another segment does not help", [](BlockSizes& s) { --s.nodes[1], ++s.nodes[2]; }},
      {"an edge too few", [](BlockSizes& s) { --s.edges; }},
      {"an entry too few", [](BlockSizes& s) { --s.nonzeros; }},
      {"fewer segments", [](BlockSizes& s) { s.nodes.pop_back(); }},
      {"more segments", [](BlockSizes& s) { s.nodes.push_back(1); }},
  };
  for (const auto& c : kCases) {
    BlockSizes padded = sizes;
    c.change(padded);
    EXPECT_FALSE(padded.Holds(sizes)) << c.why;
    EXPECT_EQ((*batcher)->Gather(subgraph, padded, batch).code(), absl::StatusCode::kInvalidArgument) << c.why;
    ASSERT_TRUE((*batcher)->Gather(subgraph, sizes, batch).ok());
    EXPECT_EQ((*batcher)->Pad(padded, batch).code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_EQ(batch.padded, sizes) << c.why;
  }
  EXPECT_TRUE(sizes.Holds(sizes));
  EXPECT_EQ(sizes.shape(), (BatchShape{sizes.total_nodes(), sizes.edges, 3}));

  auto weights = BlockBatcher::Create(graph, {.sampling = {.fan_outs = {4, 3}}, .edge_weights = true});
  ASSERT_TRUE(weights.ok());
  EXPECT_THAT((*weights)->Gather(subgraph, sizes, batch).message(), HasSubstr("places of its edges"));
  const auto unweighted = std::make_shared<MemoryGraph>(2, std::vector<TestEdge>{{0, 1}});
  EXPECT_EQ(
      GetViolations(BlockBatcher::Create(unweighted, {.sampling = {.fan_outs = {1}}, .edge_weights = true}).status())
          .front()
          .field,
      "edge_weights");
}

TEST(BlockBatcher, DamageIsDataLoss) {
  const auto sample_and_gather = [](const std::shared_ptr<MemoryGraph>& graph) {
    auto batcher = BlockBatcher::Create(graph, {.sampling = {.fan_outs = {4, 3}}, .edge_weights = true, .threads = 2});
    EXPECT_TRUE(batcher.ok());
    SampledSubgraph subgraph;
    const absl::Status sampled = (*batcher)->Sample(std::vector<NodeId>{1, 2, 3, 5}, 0, nullptr, subgraph);
    if (!sampled.ok()) return sampled;
    BlockBatch batch;
    return (*batcher)->Gather(subgraph, {.nodes = {9, 99, 999}, .edges = 999, .nonzeros = 9999}, batch);
  };
  ASSERT_TRUE(sample_and_gather(GraphWith(Kind::kSparse)).ok());
  const struct {
    const char* why;
    Kind kind;
    void (*damage)(MemoryGraph&);
  } kCases[] = {
      {"dense features", Kind::kDense,
       [](MemoryGraph& g) {
         auto& dense = std::get<DenseFeatures>(g.view().node_features);
         dense.bytes = g.KeepDamaged(std::vector<std::byte>(dense.bytes.size()));
       }},
      {"offsets of sparse features", Kind::kSparse,
       [](MemoryGraph& g) {
         auto& sparse = std::get<SparseFeatures>(g.view().node_features);
         sparse.offsets = g.KeepDamaged(std::vector<uint64_t>(sparse.offsets.size()));
       }},
      {"columns", Kind::kSparse,
       [](MemoryGraph& g) {
         auto& sparse = std::get<SparseFeatures>(g.view().node_features);
         sparse.columns = g.KeepDamaged(std::vector<uint32_t>(sparse.columns.size()));
       }},
      {"columns that are none, written after they were verified", Kind::kSparse,
       [](MemoryGraph& g) {
         auto& sparse = std::get<SparseFeatures>(g.view().node_features);
         sparse.columns = g.Keep(std::vector<uint32_t>(sparse.columns.size(), 60));
       }},
      {"labels", Kind::kNone,
       [](MemoryGraph& g) { g.view().labels = g.KeepDamaged(std::vector<float>(g.view().labels.size())); }},
      {"weights", Kind::kNone,
       [](MemoryGraph& g) { g.view().in.weights = g.KeepDamaged(std::vector<float>(g.view().edges)); }},
      {"a file that was written to", Kind::kNone,
       [](MemoryGraph& g) { g.intact = absl::DataLossError("graph.pfg: was written to"); }},
  };
  for (const auto& c : kCases) {
    const auto graph = GraphWith(c.kind);
    c.damage(*graph);
    EXPECT_EQ(sample_and_gather(graph).code(), absl::StatusCode::kDataLoss) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::data
