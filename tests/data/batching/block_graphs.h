// Graphs with every kind of node features, and sizes to pad their blocks to. Each feature value tells which node and
// column it comes from.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.h"
#include "data/batching/block_batch.h"
#include "data/memory_graph.h"

namespace permafrost::data {

inline constexpr uint64_t kNodes = 800;
inline constexpr int64_t kWidth = 5;

enum class Kind { kNone, kDense, kDenseInts, kSparse, kSparseOnes };

inline float ValueOf(NodeId node, int64_t column) {
  return static_cast<float>(node) + 1000 * static_cast<float>(column);
}

inline constexpr int64_t kPositionColumns = 2;
inline std::array<float, kPositionColumns> PositionOf(NodeId node) {
  return {static_cast<float>(node) + 0.5F, -static_cast<float>(node)};
}

inline std::shared_ptr<MemoryGraph> GraphWith(Kind kind) {
  auto graph = RandomGraph(kNodes, 9000, 6, true);
  GraphView& view = graph->view();
  if (kind == Kind::kDense || kind == Kind::kDenseInts) {
    std::vector<std::byte> bytes(kNodes * kWidth * 4);
    for (NodeId node = 0; node < kNodes; ++node) {
      for (int64_t column = 0; column < kWidth; ++column) {
        const float value = ValueOf(node, column);
        const auto whole = static_cast<int32_t>(value);
        const void* from = kind == Kind::kDense ? static_cast<const void*>(&value) : &whole;
        std::memcpy(bytes.data() + (node * kWidth + static_cast<uint64_t>(column)) * 4, from, 4);
      }
    }
    view.node_features = DenseFeatures{kind == Kind::kDense ? DataType::kFloat32 : DataType::kInt32, kWidth,
                                       graph->Keep(std::move(bytes))};
  } else if (kind != Kind::kNone) {
    // Node n has n % 4 entries.
    std::vector<uint64_t> offsets = {0};
    std::vector<uint32_t> columns;
    std::vector<float> values;
    for (NodeId node = 0; node < kNodes; ++node) {
      for (NodeId e = 0; e < node % 4; ++e) {
        columns.push_back(node % 50 + e);
        values.push_back(ValueOf(node, e));
      }
      offsets.push_back(columns.size());
    }
    view.node_features = SparseFeatures{60, graph->Keep(offsets), graph->Keep(columns),
                                        kind == Kind::kSparse ? graph->Keep(values) : Column<float>()};
  }
  std::vector<std::byte> positions(kNodes * kPositionColumns * sizeof(float));
  for (NodeId node = 0; node < kNodes; ++node) {
    const std::array<float, kPositionColumns> own = PositionOf(node);
    std::memcpy(positions.data() + node * sizeof(own), own.data(), sizeof(own));
  }
  view.positions = DenseFeatures{DataType::kFloat32, kPositionColumns, graph->Keep(std::move(positions))};
  view.num_targets = 2;
  std::vector<float> labels;
  for (NodeId node = 0; node < kNodes; ++node) {
    labels.push_back(static_cast<float>(node));
    labels.push_back(node % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(2 * node));
  }
  view.labels = graph->Keep(std::move(labels));
  return graph;
}

// Returns `sizes` with random extra room in every dimension.
inline BlockSizes Larger(const BlockSizes& sizes, SplitMix64& random) {
  BlockSizes larger = sizes;
  for (int64_t& rows : larger.nodes) rows += static_cast<int64_t>(random.Below(40));
  larger.edges += static_cast<int64_t>(random.Below(100));
  if (larger.nonzeros > 0) larger.nonzeros += static_cast<int64_t>(random.Below(100));
  return larger;
}

}  // namespace permafrost::data
