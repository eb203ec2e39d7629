#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "data/batching/block_batch.h"

namespace permafrost::data {
namespace {

// Returns `count` rows of `from`, from row `begin` on and around again as often as needed; zeros if `from` has none.
template <class T>
AlignedVector<T> Repeat(const AlignedVector<T>& from, int64_t rows, int64_t width, int64_t count, uint64_t begin) {
  AlignedVector<T> out(static_cast<size_t>(count * width), T{});
  if (rows == 0 || from.empty()) return out;
  for (int64_t row = 0; row < count; ++row) {
    const auto source = from.begin() + static_cast<int64_t>((begin + static_cast<uint64_t>(row)) % rows) * width;
    std::copy(source, source + width, out.begin() + row * width);
  }
  return out;
}

// Repeats sparse rows, and adds an empty one.
void RepeatEntries(const BlockBatch& from, int64_t rows, int64_t count, uint64_t begin, BlockBatch& out) {
  if (from.feature_offsets.empty()) return;
  out.feature_offsets.assign(1, 0);
  for (int64_t row = 0; row < count; ++row) {
    const auto source = static_cast<size_t>((begin + static_cast<uint64_t>(row)) % static_cast<uint64_t>(rows));
    const int64_t first = from.feature_offsets[source], last = from.feature_offsets[source + 1];
    out.feature_columns.insert(out.feature_columns.end(), from.feature_columns.begin() + first,
                               from.feature_columns.begin() + last);
    if (!from.feature_values.empty()) {
      out.feature_values.insert(out.feature_values.end(), from.feature_values.begin() + first,
                                from.feature_values.begin() + last);
    }
    out.feature_offsets.push_back(static_cast<int64_t>(out.feature_columns.size()));
  }
  out.feature_offsets.push_back(out.feature_offsets.back());
  out.real.nonzeros = out.padded.nonzeros = out.feature_offsets.back();
}

// Returns the seeds of `from` that have a label.
std::vector<int64_t> FindLabelled(const BlockBatch& from, int64_t targets) {
  std::vector<int64_t> labelled;
  for (int64_t seed = 0; seed < from.real_seeds; ++seed) {
    const auto* const labels = from.labels.data() + seed * targets;
    if (std::any_of(labels, labels + targets, [](float label) { return !std::isnan(label); })) labelled.push_back(seed);
  }
  return labelled;
}

}  // namespace

BlockBatch ComposeBlock(const BlockBatch& from, const BatchShape& shape, uint64_t seed, bool weighted) {
  const int64_t nodes = shape.nodes - 1, rows = from.real.total_nodes(), edges = from.real.edges;
  SplitMix64 random(seed, /*stream=*/0);
  const uint64_t begin = random.Below(static_cast<uint64_t>(rows));
  BlockBatch out;
  out.real = {.nodes = {shape.graphs, nodes - shape.graphs, 0}, .edges = shape.edges};
  out.padded = {.nodes = {shape.graphs, nodes - shape.graphs, 1}, .edges = shape.edges};
  out.real_seeds = shape.graphs;
  for (int64_t row = 0; row < nodes; ++row) {
    out.nodes.push_back(from.nodes[(begin + static_cast<uint64_t>(row)) % from.nodes.size()]);
  }
  // Values of `from` include its padding row, so the width is their number divided by all padded rows.
  const auto width = [&](const auto& values) { return std::ssize(values) / from.padded.total_nodes(); };
  out.features = Repeat(from.features, rows, width(from.features), nodes, begin);
  out.features.resize(static_cast<size_t>(shape.nodes * width(from.features)), 0.0f);
  out.positions = Repeat(from.positions, rows, width(from.positions), nodes, begin);
  out.positions.resize(static_cast<size_t>(shape.nodes * width(from.positions)), 0.0f);
  if (!from.feature_rows.empty()) {
    out.feature_rows = Repeat(from.feature_rows, rows, /*width=*/1, nodes, begin);
    out.feature_rows.push_back(from.feature_rows.back());
  }
  RepeatEntries(from, rows, nodes, begin, out);

  // Edge e ends at row e * nodes / edges.
  out.offsets.resize(static_cast<size_t>(nodes) + 1);
  for (int64_t row = 0; row <= nodes; ++row) {
    out.offsets[static_cast<size_t>(row)] = (row * shape.edges + nodes - 1) / nodes;
  }
  out.sources.resize(static_cast<size_t>(shape.edges));
  for (int64_t edge = 0; edge < shape.edges; ++edge) {
    const int64_t target = edge * nodes / shape.edges;
    const int64_t step = nodes == 1 ? 0 : 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(nodes - 1)));
    out.sources[static_cast<size_t>(edge)] = (target + step) % nodes;
  }
  if (weighted) {
    out.edge_weights = Repeat(from.edge_weights, edges, 1, shape.edges, begin);
    if (edges == 0) std::ranges::fill(out.edge_weights, 1.0f);
  }
  out.edge_int_columns = from.edge_int_columns;
  out.edge_float_columns = from.edge_float_columns;
  out.edge_ints = Repeat(from.edge_ints, edges, from.edge_int_columns, shape.edges, begin);
  out.edge_floats = Repeat(from.edge_floats, edges, from.edge_float_columns, shape.edges, begin);

  const int64_t targets = std::ssize(from.labels) / from.padded.nodes.front();
  const std::vector<int64_t> labelled = FindLabelled(from, targets);
  out.labels.assign(static_cast<size_t>(shape.graphs * targets), std::numeric_limits<float>::quiet_NaN());
  for (int64_t row = 0; row < shape.graphs && !labelled.empty(); ++row) {
    const int64_t source = labelled[(begin + static_cast<uint64_t>(row)) % labelled.size()];
    std::copy_n(from.labels.begin() + source * targets, targets, out.labels.begin() + row * targets);
  }
  return out;
}

}  // namespace permafrost::data
