// Gathers rows of nodes and edges into padded batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "data/rows/row_cache.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/sampling/page_advisor.h"
#include "data/store/edge_rows.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Rows of a padded batch: they lie in segments, each with its real rows first.
// Threads: safe anywhere for different vectors.

// Bounds of the segments of a padded batch, [segments + 1]: the first row of each, then the end of the last.
using SegmentBounds = std::vector<int64_t>;
// Reuses the memory of `bounds`.
void SetBounds(std::span<const int64_t> rows_of_segments, SegmentBounds& bounds);

// Returns where a row of segments bounded by `from` stands between the bounds `to`. from.front() <= row < from.back().
inline int64_t MoveRow(int64_t row, const SegmentBounds& from, const SegmentBounds& to) {
  size_t s = 0;
  while (row >= from[s + 1]) ++s;
  return row - from[s] + to[s];
}

// Sets the padding rows between `bounds` to `value`. values: [rows, width]; real: [segments] real rows of each.
template <class T>
void FillPadding(AlignedVector<T>& values, const SegmentBounds& bounds, std::span<const int64_t> real, int64_t width,
                 T value) {
  for (size_t s = 0; s < real.size(); ++s) {
    std::fill(values.begin() + (bounds[s] + real[s]) * width, values.begin() + bounds[s + 1] * width, value);
  }
}

// Gives [rows, width] values another padding, in place; what stands in padding rows then is anything.
template <class T>
void MoveRows(AlignedVector<T>& values, const SegmentBounds& from, const SegmentBounds& to,
              std::span<const int64_t> real, int64_t width) {
  const auto move = [&](size_t s) {
    const auto source = values.begin() + from[s] * width, target = values.begin() + to[s] * width;
    if (to[s] < from[s]) {
      std::copy(source, source + real[s] * width, target);
    } else {
      std::copy_backward(source, source + real[s] * width, target + real[s] * width);
    }
  };
  values.resize(static_cast<size_t>(std::max(from.back(), to.back()) * width));
  // A segment that goes up can meet only those after it that go up too, and one that goes down only those before it
  // that go down.
  for (size_t s = real.size(); s-- > 0;) {
    if (to[s] > from[s]) move(s);
  }
  for (size_t s = 0; s < real.size(); ++s) {
    if (to[s] < from[s]) move(s);
  }
  values.resize(static_cast<size_t>(to.back() * width));
}

// The same for [rows + 1] offsets of CSR, whose padding rows are empty.
void MoveOffsets(AlignedVector<int64_t>& offsets, const SegmentBounds& from, const SegmentBounds& to,
                 std::span<const int64_t> real);

// Fills offsets whose real rows hold their begins, the last one's end being `total`: padding rows begin where the next
// real row does.
void FillOffsetPadding(AlignedVector<int64_t>& offsets, const SegmentBounds& bounds, std::span<const int64_t> real,
                       int64_t total);

// Rows of edges, gathered from all over a mapping into padded batches.
// Threads: one at a time, which uses up to `threads` OpenMP threads within a call. Borrows the graph.
class EdgeGather {
 public:
  EdgeGather(const Graph& graph, EdgeInputs inputs, int threads) : rows_(graph, inputs), threads_(threads) {}

  // Returns whether there is anything to gather.
  bool reads() const { return rows_.width() > 0; }
  int64_t int_columns() const { return rows_.categorical() ? rows_.width() : 0; }
  int64_t float_columns() const { return rows_.categorical() ? 0 : rows_.width(); }
  // Asks for the pages of the edges at these places.
  void Request(std::span<const uint64_t> places, PageAdvisor& advisor) const;
  // The rows of the edges at these places, and zeros up to `padded` of them: one of the two, as categories or not.
  // Errors: DataLoss.
  absl::Status Gather(std::span<const uint64_t> places, int64_t padded, AlignedVector<int64_t>& ints,
                      AlignedVector<float>& floats) const;
  // Gives a gathered batch, in place, another number of zeros behind its `real` rows.
  void Pad(int64_t real, int64_t padded, AlignedVector<int64_t>& ints, AlignedVector<float>& floats) const;

 private:
  const EdgeRows rows_;
  const int threads_;
};

// Rows of node features, gathered from all over a mapping, or from a feature cache where there is one.
// Threads: one at a time, which uses up to `threads` OpenMP threads within a call. Borrows the features.
class FeatureGather {
 public:
  // `nodes`: rows of the features. rows: where dense ones are; nullptr: in the mapping. With it only rows may be
  // gathered that a lease holds.
  FeatureGather(const Features& features, uint64_t nodes, int threads, const RowCache* rows = nullptr)
      : features_(features), nodes_(nodes), threads_(threads), rows_(rows) {}

  bool sparse() const { return std::holds_alternative<SparseFeatures>(features_); }

  // Asks for the pages of these rows, and flushes. Errors: DataLoss (offsets of sparse rows are read).
  absl::Status Request(std::span<const NodeId> nodes, PageAdvisor& advisor);
  // Entries of sparse rows, which a Sparse of the same nodes then takes for granted; 0 of dense ones. Errors: DataLoss.
  absl::StatusOr<int64_t> CountNonzeros(std::span<const NodeId> nodes);

  // Rows as float32, row i of segments bounded by `real` at its place between `padded`. out: room for all of those.
  absl::Status Dense(std::span<const NodeId> nodes, const SegmentBounds& real, const SegmentBounds& padded,
                     std::span<float> out);
  // Gathers dense features for a subgraph with its last hop apart: each row's neighbours' mean, which is 0 where there
  // is none, and its own features after it. Sums are in the order of the edges. out: room for rows of twice the width.
  absl::Status Means(const SampledSubgraph& subgraph, const SegmentBounds& real, const SegmentBounds& padded,
                     std::span<float> out);
  // Gathers the rows as CSR, after CountNonzeros. row_begins: begin of each row at its padded place; columns and
  // values: room for all entries; values is empty where the features' are.
  absl::Status Sparse(std::span<const NodeId> nodes, const SegmentBounds& real, const SegmentBounds& padded,
                      std::span<int64_t> row_begins, std::span<int64_t> columns, std::span<float> values);

 private:
  // nullptr: there is none, or it cannot be read.
  const std::byte* FindRow(const DenseFeatures& dense, NodeId node) const;
  void PrefetchRow(const DenseFeatures& dense, NodeId node) const;

  const Features& features_;
  const uint64_t nodes_;
  const int threads_;
  const RowCache* const rows_;
  struct Extent {
    uint64_t begin = 0, size = 0;  // among the features' entries
    int64_t to = 0;                // among those gathered
  };
  std::vector<Extent> extents_;
  std::vector<float> sums_;  // a row for each thread
};

}  // namespace permafrost::data
