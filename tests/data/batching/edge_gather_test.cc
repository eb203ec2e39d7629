// Compares the edge rows of batches with the rows of the store.
#include "data/batching/row_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <numeric>

#include "data/batching/block_batch.h"
#include "data/batching/block_graphs.h"

namespace permafrost::data {
namespace {

using ::testing::HasSubstr;

enum class Edges { kFloats, kHalves, kIntegers, kBytes };
constexpr int64_t kColumns = 3, kCategories = 50;

DataType TypeOf(Edges edges) {
  switch (edges) {
    case Edges::kFloats:
      return DataType::kFloat32;
    case Edges::kHalves:
      return DataType::kBfloat16;
    case Edges::kIntegers:
      return DataType::kInt64;
    case Edges::kBytes:
      return DataType::kUint8;
  }
  return DataType::kNone;
}

int64_t ValueAt(uint64_t row, int64_t column) {
  return static_cast<int64_t>((row * 7 + static_cast<uint64_t>(column) * 3) % kCategories);
}

template <class T>
void PutValue(std::vector<std::byte>& bytes, T value) {
  const auto* const from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(T));
}

// With `ids`, the edges refer to the feature rows in reverse order. Without them, edge i has row i.
std::shared_ptr<MemoryGraph> GraphWithEdges(Edges edges, bool ids, bool damaged = false) {
  auto graph = GraphWith(Kind::kDense);
  GraphView& view = graph->view();
  std::vector<std::byte> bytes;
  for (uint64_t row = 0; row < view.edges; ++row) {
    for (int64_t c = 0; c < kColumns; ++c) {
      const int64_t value = ValueAt(row, c);
      if (edges == Edges::kFloats) PutValue(bytes, static_cast<float>(value));
      if (edges == Edges::kHalves)
        PutValue(bytes, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
      if (edges == Edges::kIntegers) PutValue(bytes, value);
      if (edges == Edges::kBytes) PutValue(bytes, static_cast<uint8_t>(value));
    }
  }
  view.edge_features = {.type = TypeOf(edges),
                        .width = kColumns,
                        .bytes = damaged ? graph->KeepDamaged(bytes) : graph->Keep(bytes),
                        .groups = {},
                        .scales = {}};
  if (ids) {
    std::vector<uint64_t> rows(view.edges);
    std::iota(rows.rbegin(), rows.rend(), uint64_t{0});
    view.in.edge_ids = graph->Keep(rows);
  }
  graph->mutable_summary().edge_features = {.type = TypeOf(edges),
                                            .width = kColumns,
                                            .min = std::vector<double>(kColumns, 0),
                                            .max = std::vector<double>(kColumns, kCategories - 1)};
  return graph;
}

BlockBatcher::Options Reading(EdgeInputs inputs) {
  return {.sampling = {.fan_outs = {4, 3}, .seed = 2}, .edges = inputs, .threads = 2};
}

template <class T>
void ExpectRows(const GraphView& view, const SampledSubgraph& s, const BlockBatch& batch, const AlignedVector<T>& got) {
  ASSERT_EQ(std::ssize(got), batch.padded.edges * kColumns);
  for (size_t e = 0; e < s.sources.size(); ++e) {
    const uint64_t place = s.edge_places[e];
    const uint64_t row = view.in.edge_ids.empty() ? place : view.in.edge_ids[place];
    for (int64_t c = 0; c < kColumns; ++c) {
      ASSERT_EQ(static_cast<int64_t>(got[e * kColumns + static_cast<size_t>(c)]), ValueAt(row, c)) << e;
    }
  }
  for (size_t i = s.sources.size() * kColumns; i < got.size(); ++i) ASSERT_EQ(got[i], T{0}) << "padding";
}

TEST(EdgeGather, EveryTypeOfRowGoesWithItsEdgeAtAnySize) {
  for (const Edges edges : {Edges::kFloats, Edges::kHalves, Edges::kIntegers, Edges::kBytes}) {
    for (const bool ids : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(edges) << ", ids " << ids);
      const auto graph = GraphWithEdges(edges, ids);
      const auto batcher = *BlockBatcher::Create(graph, Reading(EdgeInputs::kFeatures));
      SplitMix64 random(3, 4);
      SampledSubgraph subgraph;
      BlockBatch batch;
      PageAdvisor advisor({});
      for (uint64_t stream = 0; stream < 6; ++stream) {
        std::vector<NodeId> seeds(random.Below(90));
        std::iota(seeds.begin(), seeds.end(), static_cast<NodeId>(stream));
        ASSERT_TRUE(batcher->Sample(seeds, stream, &advisor, subgraph).ok());
        BlockSizes sizes = *SizesOf(subgraph, graph->view());
        ++sizes.nodes.back();
        ASSERT_TRUE(batcher->Gather(subgraph, sizes, batch).ok());
        for (int i = 0; i < 3; ++i) {
          if (i > 0) {
            sizes = Larger(sizes, random);
            ASSERT_TRUE(batcher->Pad(sizes, batch).ok());
          }
          const bool categorical = IsCategorical(TypeOf(edges));
          EXPECT_EQ(batch.edge_int_columns, categorical ? kColumns : 0);
          EXPECT_EQ(batch.edge_float_columns, categorical ? 0 : kColumns);
          if (categorical) ExpectRows(graph->view(), subgraph, batch, batch.edge_ints);
          if (!categorical) ExpectRows(graph->view(), subgraph, batch, batch.edge_floats);
        }
      }
      EXPECT_GT(advisor.counters().wanted_pages, 0);
    }
  }
}

TEST(EdgeGather, WeightsMayStandForFeatures) {
  const auto graph = GraphWith(Kind::kDense);
  const auto batcher = *BlockBatcher::Create(graph, Reading(EdgeInputs::kWeights));
  SampledSubgraph subgraph;
  BlockBatch batch;
  ASSERT_TRUE(batcher->Sample(std::vector<NodeId>{1, 5, 9}, 1, nullptr, subgraph).ok());
  const BlockSizes sizes = *SizesOf(subgraph, graph->view());
  ASSERT_TRUE(batcher->Gather(subgraph, sizes, batch).ok());
  ASSERT_EQ(batch.edge_float_columns, 1);
  ASSERT_GT(sizes.edges, 0);
  for (size_t e = 0; e < subgraph.sources.size(); ++e) {
    EXPECT_EQ(batch.edge_floats[e], graph->view().in.weights[subgraph.edge_places[e]]);
  }
  EXPECT_TRUE(batch.edge_weights.empty()) << "they are no weights of messages";
}

TEST(EdgeGather, WhatIsNotThereIsRefused) {
  const auto without = BlockBatcher::Create(GraphWith(Kind::kDense), Reading(EdgeInputs::kFeatures));
  EXPECT_THAT(std::string(without.status().message()), HasSubstr("edges: features, but the graph's edges have none"));
  const auto unweighted = BlockBatcher::Create(RandomGraph(40, 90, 1), Reading(EdgeInputs::kWeights));
  EXPECT_THAT(std::string(unweighted.status().message()), HasSubstr("edges: weights, but the graph's edges have none"));
  BlockBatcher::Options apart = Reading(EdgeInputs::kFeatures);
  apart.sampling.last_hop_apart = true;
  EXPECT_TRUE(absl::IsInvalidArgument(BlockBatcher::Create(GraphWithEdges(Edges::kFloats, true), apart).status()));
}

// The first graph has a block that does not match its checksum. The second has a category that the summary does not
// list.
TEST(EdgeGather, DamageIsDataLoss) {
  const auto damaged = GraphWithEdges(Edges::kFloats, true, /*damaged=*/true);
  const auto unknown = GraphWithEdges(Edges::kIntegers, true);
  unknown->mutable_summary().edge_features.max.assign(kColumns, 25.0);
  for (const auto& graph : {damaged, unknown}) {
    const auto batcher = *BlockBatcher::Create(graph, Reading(EdgeInputs::kFeatures));
    SampledSubgraph subgraph;
    BlockBatch batch;
    std::vector<NodeId> seeds(80);
    std::iota(seeds.begin(), seeds.end(), 0U);
    ASSERT_TRUE(batcher->Sample(seeds, 1, nullptr, subgraph).ok());
    const absl::Status gathered = batcher->Gather(subgraph, *SizesOf(subgraph, graph->view()), batch);
    EXPECT_TRUE(absl::IsDataLoss(gathered)) << gathered;
    const EdgeRows rows(*graph, EdgeInputs::kFeatures);
    std::vector<float> floats(graph->view().edges * kColumns);
    std::vector<int64_t> ints(graph->view().edges * kColumns);
    const absl::Status read = rows.categorical() ? ReadEdgeRows(rows, 0, graph->view().edges, ints.data())
                                                 : ReadEdgeRows(rows, 0, graph->view().edges, floats.data());
    EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  }
}

TEST(EdgeRows, AreCountedInTheStoreAndInABatch) {
  GraphSummary summary;
  summary.edges = 1000;
  summary.edge_features = {.type = DataType::kInt32, .width = 3, .min = {}, .max = {}};
  EXPECT_EQ(EdgeTableBytes(summary, EdgeInputs::kFeatures), 12'000U);
  EXPECT_EQ(EdgeRowBytes(summary, EdgeInputs::kFeatures), 24U) << "categories take 8 bytes in a batch";
  summary.inverse_edges_added = true;
  EXPECT_EQ(EdgeTableBytes(summary, EdgeInputs::kFeatures), 6'000U) << "an edge and its inverse share a row";
  EXPECT_EQ(EdgeRowBytes(summary, EdgeInputs::kWeights), 4U);
  EXPECT_EQ(EdgeTableBytes(summary, EdgeInputs::kNone) + EdgeRowBytes(summary, EdgeInputs::kNone), 0U);
}

}  // namespace
}  // namespace permafrost::data
