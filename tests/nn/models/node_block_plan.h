// Random blocks, padded as data/batching/block_batch.h pads them. Their real part depends on the seed alone.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "nn/models/model.h"

namespace permafrost::nn {

inline constexpr int64_t kBlockClasses = 3;

struct Plan {
  std::vector<int64_t> real, padded;  // rows of each segment
  int64_t padded_edges = 0;           // the least number of padded edges
  bool whole = false;                 // one segment, in which every row has in-edges
  int64_t width = 6;
  bool sparse = false, weighted = false, self_loops = true;
  // Number of columns of edge features, and the categories of each column. With 0 categories the columns are floats.
  int64_t edge_columns = 0, edge_categories = 0;
};

// Returns [edges, columns] features that depend on each edge's position alone.
inline at::Tensor MakeEdgeFeatures(const Plan& plan, int64_t edges, int64_t real_edges) {
  const int64_t columns = plan.edge_columns;
  if (columns == 0) return {};
  at::Tensor draws = (at::arange(edges * columns, at::kLong) * 7919 + 13).remainder(101).view({edges, columns});
  draws.narrow(0, real_edges, edges - real_edges).fill_(0);
  if (plan.edge_categories > 0) return draws.remainder(plan.edge_categories);
  return draws.to(at::kFloat) / 50 - 1;
}

inline NodeBlock MakeBlock(const Plan& plan, int64_t layers, uint64_t seed, at::ScalarType type = at::kFloat) {
  constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto uniform = [&] { return static_cast<float>(below(2001) - 1000) / 1000; };
  std::vector<int64_t> place, real_ends, padded_ends;  // one entry per real row
  int64_t all_rows = 0;
  for (size_t s = 0; s < plan.real.size(); ++s) {
    for (int64_t i = 0; i < plan.real[s]; ++i) place.push_back(all_rows + i);
    all_rows += plan.padded[s];
    real_ends.push_back(static_cast<int64_t>(place.size()));
    padded_ends.push_back(all_rows);
  }
  const auto rows = static_cast<size_t>(all_rows);
  const size_t with_edges = plan.whole ? 0 : plan.real.size() - 2;
  // Everything is drawn per real row, so that padding does not change the draws.
  std::vector<std::vector<int64_t>> in(rows), columns(rows);
  std::vector<std::vector<float>> weights(rows), values(rows);
  std::vector<float> labels(rows, kMissing), dense(rows * static_cast<size_t>(plan.width), 0.0F);
  std::vector<int64_t> keys(rows, -77);
  for (size_t r = 0; r < place.size(); ++r) {
    const auto at = static_cast<size_t>(place[r]);
    keys[at] = static_cast<int64_t>(r);
    labels[at] = below(6) == 0 ? kMissing : static_cast<float>(below(kBlockClasses));
    for (int64_t c = 0; c < plan.width; ++c) {
      const float value = uniform();
      if (plan.sparse && below(3) != 0) continue;
      dense[at * static_cast<size_t>(plan.width) + static_cast<size_t>(c)] = value;
      columns[at].push_back(c);
      values[at].push_back(value);
    }
    size_t segment = 0;
    while (static_cast<int64_t>(r) >= real_ends[segment]) ++segment;
    if (segment > with_edges) continue;
    const int64_t reach = plan.whole ? real_ends[0] : real_ends[segment + 1];
    for (int64_t e = below(5); e > 0; --e) {
      const int64_t source = below(reach);
      const auto weight = static_cast<float>(1 + below(4)) / 2;
      if (source == static_cast<int64_t>(r) && !plan.self_loops) continue;
      // PyG keeps one of several self-loops of a node, so the block has at most one.
      if (source == static_cast<int64_t>(r) && std::ranges::count(in[at], place[r]) > 0) continue;
      in[at].push_back(place[static_cast<size_t>(source)]);
      weights[at].push_back(weight);
    }
  }
  NodeBlock block;
  std::vector<int64_t> offsets{0}, sources, feature_offsets{0}, feature_columns;
  std::vector<float> edge_weights, feature_values;
  for (size_t r = 0; r < rows; ++r) {
    if (static_cast<int64_t>(r) < padded_ends[with_edges]) {
      sources.insert(sources.end(), in[r].begin(), in[r].end());
      edge_weights.insert(edge_weights.end(), weights[r].begin(), weights[r].end());
      offsets.push_back(static_cast<int64_t>(sources.size()));
    }
    feature_columns.insert(feature_columns.end(), columns[r].begin(), columns[r].end());
    feature_values.insert(feature_values.end(), values[r].begin(), values[r].end());
    feature_offsets.push_back(static_cast<int64_t>(feature_columns.size()));
  }
  while (static_cast<int64_t>(sources.size()) < plan.padded_edges) {
    sources.push_back(all_rows - 1);
    edge_weights.push_back(0);
    feature_columns.push_back(0);
    feature_values.push_back(kMissing);
  }
  if (plan.whole) {
    block.row_ends.assign(static_cast<size_t>(layers) + 1, all_rows);
  } else {
    block.row_ends = padded_ends;
  }
  if (plan.sparse) {
    block.feature_offsets = at::tensor(feature_offsets, at::kLong);
    block.feature_columns = at::tensor(feature_columns, at::kLong);
    block.feature_values = at::tensor(feature_values);
  } else {
    block.features = at::tensor(dense).view({all_rows, plan.width}).to(type);
  }
  block.offsets = at::tensor(offsets, at::kLong);
  block.sources = at::tensor(sources, at::kLong);
  if (plan.weighted) block.edge_weights = at::tensor(edge_weights);
  block.edge_features = MakeEdgeFeatures(plan, std::ssize(sources), offsets.back());
  labels.resize(static_cast<size_t>(block.row_ends[0]));
  block.labels = at::tensor(labels).view({-1, 1}).to(type);
  block.row_keys = at::tensor(keys, at::kLong);
  block.step = at::full({1}, static_cast<int64_t>(seed), at::kLong);
  return block;
}

}  // namespace permafrost::nn
