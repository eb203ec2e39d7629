// A small random graph with learnable labels, written as a store, for tests of jobs on nodes.
#pragma once

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "data/store/graph.h"
#include "data/store/store_writer.h"

namespace permafrost::train {

struct TinyGraphOptions {
  int nodes = 400;
  bool sparse = false;       // whether feature rows are sparse
  bool features = true;      // whether nodes have features
  bool weighted = false;     // whether edges have weights
  bool timestamped = false;  // whether edges have timestamps, from 0 to 49
  bool node_times = false;   // whether nodes have times, from 0 to 59
  bool named = false;        // whether nodes have names; row 3 is then called `the 3rd, "x"`
  int edge_floats = 0;       // float columns of edge features, equal for an edge and its inverse
  int edge_categories = 0;   // categories in each of two integer columns that replace the floats; 0 for none
  // With 1 target, a label is a class from 0 to 2. With more, each is 0 or 1. With 0, there are no labels.
  int targets = 1;
  bool says_categories = true;  // whether the store says what its categories stand for, which older stores do not
  bool measures = false;        // whether the one target is a fraction that rises with the class
};

// Rows of edge features, and the row of each edge, ordered by the edge's target.
struct EdgeTable {
  std::vector<uint64_t> ids;
  std::vector<float> floats;
  std::vector<int32_t> ints;
};
inline EdgeTable EdgeTableOf(const std::vector<std::vector<uint32_t>>& in, const TinyGraphOptions& options) {
  EdgeTable table;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> rows;
  for (uint32_t v = 0; v < in.size(); ++v) {
    for (const uint32_t u : in[v]) {
      const auto [row, is_new] = rows.try_emplace(std::minmax(u, v), rows.size());
      table.ids.push_back(row->second);
      if (!is_new) continue;
      const auto id = static_cast<uint32_t>(row->second);
      for (uint32_t c = 0; c < static_cast<uint32_t>(options.edge_floats); ++c) {
        table.floats.push_back(static_cast<float>((id * 37 + c * 11) % 23) / 10 - 1);
      }
      for (uint32_t c = 0; c < 2 && options.edge_categories > 0; ++c) {
        table.ints.push_back(static_cast<int32_t>((id * 11 + c) % static_cast<uint32_t>(options.edge_categories)));
      }
    }
  }
  return table;
}

// Nodes of one class have similar features, and mostly neighbours of their own class. Every 17th node has no edges,
// and every 19th has no label. The splits are 60 %, 20 % and 20 %, chosen by row.
inline std::shared_ptr<const data::Graph> WriteTinyGraph(const std::filesystem::path& directory,
                                                         const TinyGraphOptions& options = {}) {
  using data::ElementType;
  using data::SectionKind;
  constexpr int kClasses = 3, kWidth = 8;
  const auto check = [](const absl::Status& status) {
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  };
  std::mt19937 random(11);
  const auto nodes = static_cast<size_t>(options.nodes);
  std::vector<int> classes(nodes);
  for (int& c : classes) c = static_cast<int>(random() % kClasses);
  std::vector<std::vector<uint32_t>> in(nodes);
  for (uint32_t v = 0; v < nodes; ++v) {
    if (v % 17 == 16) continue;
    for (int k = 0; k < 3; ++k) {
      const auto u = static_cast<uint32_t>(random() % nodes);
      if (u % 17 == 16 || (classes[u] != classes[v] && random() % 4 != 0)) continue;
      in[v].push_back(u);
      if (u != v) in[u].push_back(v);
    }
  }
  std::vector<uint64_t> offsets{0};
  std::vector<uint32_t> neighbors;
  for (auto& list : in) {
    std::ranges::sort(list);
    neighbors.insert(neighbors.end(), list.begin(), list.end());
    offsets.push_back(neighbors.size());
  }
  // Weights and timestamps are equal for an edge and its inverse.
  std::vector<float> weights;
  std::vector<int64_t> timestamps;
  for (uint32_t v = 0; v < nodes; ++v) {
    for (const uint32_t u : in[v]) {
      weights.push_back(0.5F + static_cast<float>((u + v) % 5));
      timestamps.push_back(static_cast<int64_t>(u) * v % 50);
    }
  }
  const EdgeTable table = EdgeTableOf(in, options);
  std::vector<float> features, labels;
  std::vector<uint64_t> feature_offsets{0};
  std::vector<uint32_t> feature_columns;
  for (size_t v = 0; v < nodes; ++v) {
    for (uint32_t c = 0; c < kWidth; ++c) {
      const float noise = static_cast<float>(random() % 100) / 100;
      features.push_back(static_cast<int>(c) % kClasses == classes[v] ? 1 + noise : noise);
      if (features.back() > 0.9F) feature_columns.push_back(c);
    }
    feature_offsets.push_back(feature_columns.size());
    for (int t = 0; t < options.targets; ++t) {
      const int value = options.targets == 1 ? classes[v] : (classes[v] == t ? 1 : 0);
      const float label = options.measures ? 0.1F + 0.75F * static_cast<float>(value) : static_cast<float>(value);
      labels.push_back(v % 19 == 18 ? std::numeric_limits<float>::quiet_NaN() : label);
    }
  }
  std::array<std::vector<uint32_t>, 3> splits;
  for (uint32_t v = 0; v < nodes; ++v) splits[v % 5 < 3 ? 0 : v % 5 - 2].push_back(v);

  std::filesystem::create_directories(directory);
  auto writer = data::GraphWriter::Create(directory, {});
  check(writer.status());
  const auto write = [&](SectionKind kind, ElementType type, const auto& values, uint32_t width = 1) {
    check((*writer)->Write(kind, type, std::span(values), width));
  };
  write(SectionKind::kInOffsets, ElementType::kUint64, offsets);
  write(SectionKind::kInNeighbors, ElementType::kUint32, neighbors);
  if (options.weighted) write(SectionKind::kInWeights, ElementType::kFloat32, weights);
  if (options.timestamped) write(SectionKind::kInTimestamps, ElementType::kInt64, timestamps);
  if (options.edge_categories > 0) {
    write(SectionKind::kInEdgeIds, ElementType::kUint64, table.ids);
    write(SectionKind::kEdgeFeatures, ElementType::kInt32, table.ints, 2);
  } else if (options.edge_floats > 0) {
    write(SectionKind::kInEdgeIds, ElementType::kUint64, table.ids);
    write(SectionKind::kEdgeFeatures, ElementType::kFloat32, table.floats, static_cast<uint32_t>(options.edge_floats));
  }
  if (!options.features) {
    // Writes no features at all.
  } else if (options.sparse) {
    write(SectionKind::kNodeFeatureOffsets, ElementType::kUint64, feature_offsets);
    write(SectionKind::kNodeFeatureColumns, ElementType::kUint32, feature_columns);
  } else {
    write(SectionKind::kNodeFeatures, ElementType::kFloat32, features, kWidth);
  }
  if (options.targets > 0) {
    write(SectionKind::kLabels, ElementType::kFloat32, labels, static_cast<uint32_t>(options.targets));
  }
  if (options.node_times) {
    std::vector<int64_t> times;
    for (size_t v = 0; v < nodes; ++v) times.push_back(static_cast<int64_t>(v * 7 % 60));
    write(SectionKind::kNodeTimes, ElementType::kInt64, times);
  }
  write(SectionKind::kTrainNodes, ElementType::kUint32, splits[0]);
  write(SectionKind::kValidNodes, ElementType::kUint32, splits[1]);
  write(SectionKind::kTestNodes, ElementType::kUint32, splits[2]);
  if (options.named) {
    std::string text;
    std::vector<uint64_t> ends{0};
    for (size_t v = 0; v < nodes; ++v) {
      text += "the " + std::to_string(v) + "rd, \"x\"";
      ends.push_back(text.size());
    }
    write(SectionKind::kNodeNameOffsets, ElementType::kUint64, ends);
    write(SectionKind::kNodeNameText, ElementType::kBytes, text);
  }
  data::GraphSummary summary;
  summary.named = options.named;
  summary.nodes = options.nodes;
  summary.edges = std::ssize(neighbors);
  summary.symmetric = true;
  summary.weighted = options.weighted;
  summary.timestamped = options.timestamped;
  summary.node_times = options.node_times;
  for (const auto& list : in) summary.max_degree = std::max(summary.max_degree, std::ssize(list));
  if (options.features) {
    summary.node_features.type = options.sparse ? data::DataType::kSparse : data::DataType::kFloat32;
    summary.node_features.width = kWidth;
  }
  summary.node_feature_nonzeros = options.sparse ? std::ssize(feature_columns) : 0;
  if (options.edge_categories > 0) {
    const double most = options.edge_categories - 1;
    summary.edge_features = {.type = data::DataType::kInt32, .width = 2, .min = {0, 0}, .max = {most, most}};
  } else if (options.edge_floats > 0) {
    const std::vector<double> range(static_cast<size_t>(options.edge_floats));
    summary.edge_features = {
        .type = data::DataType::kFloat32, .width = options.edge_floats, .min = range, .max = range};
  }
  summary.num_targets = options.targets;
  summary.min_label = options.measures ? 0.1 : 0;
  summary.max_label = options.measures ? 1.6 : options.targets == 1 ? kClasses - 1 : options.targets > 1 ? 1 : 0;
  summary.integer_labels = options.targets > 0 && !options.measures;
  for (size_t s = 0; s < 3; ++s) summary.split_nodes[s] = std::ssize(splits[s]);
  if (options.says_categories) {
    data::Categories& categories = (*writer)->categories();
    for (int64_t c = 0; c < (options.edge_categories > 0 ? 2 : 0); ++c) {
      std::set<int64_t> values;
      for (size_t i = static_cast<size_t>(c); i < table.ints.size(); i += 2) values.insert(table.ints[i]);
      categories.edge.tables.push_back({.column = c, .values = {values.begin(), values.end()}});
    }
    if (options.targets == 1 && !options.measures) {
      categories.classes = data::CategoryTable{.origin = data::CategoryOrigin::kClass, .values = {0, 1, 2}};
    }
  }
  check((*writer)->Finish(summary));
  auto graph = data::Graph::Open(directory);
  check(graph.status());
  return *std::move(graph);
}

}  // namespace permafrost::train
