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

// The rows of a padded batch lie in segments. Each segment holds its real rows first, then its padding rows.
// Threads: safe anywhere for different vectors.

// The bounds of the segments of a padded batch, [segments + 1]: the first row of each segment, then the end of the
// last.
using SegmentBounds = std::vector<int64_t>;
// Sets the bounds of segments with these numbers of rows. Reuses the memory of `bounds`.
void SetBounds(std::span<const int64_t> rows_of_segments, SegmentBounds& bounds);

// Converts the number of a row under the bounds `from` to its number under the bounds `to`. The row keeps its segment
// and its place in the segment. `row` must satisfy from.front() <= row < from.back().
inline int64_t MoveRow(int64_t row, const SegmentBounds& from, const SegmentBounds& to) {
  size_t s = 0;
  while (row >= from[s + 1]) ++s;
  return row - from[s] + to[s];
}

// Sets the padding rows of `values`, [rows, width], to `value`. real[s] is the number of real rows in segment s.
template <class T>
void FillPadding(AlignedVector<T>& values, const SegmentBounds& bounds, std::span<const int64_t> real, int64_t width,
                 T value) {
  for (size_t s = 0; s < real.size(); ++s) {
    std::fill(values.begin() + (bounds[s] + real[s]) * width, values.begin() + bounds[s + 1] * width, value);
  }
}

// Moves the real rows of [rows, width] values from one set of bounds to another, in place. Padding rows then hold
// arbitrary values.
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
  // If a segment that moves up overwrites another segment, the overwritten segment is a later one, which moves up
  // too. Segments that move up are therefore moved from the last to the first. A segment that moves down can overwrite
  // only earlier segments that move down too, so these are moved from the first to the last.
  for (size_t s = real.size(); s-- > 0;) {
    if (to[s] > from[s]) move(s);
  }
  for (size_t s = 0; s < real.size(); ++s) {
    if (to[s] < from[s]) move(s);
  }
  values.resize(static_cast<size_t>(to.back() * width));
}

// Moves [rows + 1] CSR offsets as MoveRows moves values, and makes padding rows empty.
void MoveOffsets(AlignedVector<int64_t>& offsets, const SegmentBounds& from, const SegmentBounds& to,
                 std::span<const int64_t> real);

// Completes CSR offsets in which only the offsets of real rows are set. A padding row gets the offset of the next
// real row, so that it is empty. `total` is the end of the last row.
void FillOffsetPadding(AlignedVector<int64_t>& offsets, const SegmentBounds& bounds, std::span<const int64_t> real,
                       int64_t total);

// Gathers rows of edges, which lie scattered over a mapping, into padded batches.
// Threads: one at a time. A call uses up to `threads` OpenMP threads. Borrows the graph.
class EdgeGather {
 public:
  EdgeGather(const Graph& graph, EdgeInputs inputs, int threads) : rows_(graph, inputs), threads_(threads) {}

  // Returns whether there is anything to gather for edges.
  bool reads() const { return rows_.width() > 0; }
  int64_t int_columns() const { return rows_.categorical() ? rows_.width() : 0; }
  int64_t float_columns() const { return rows_.categorical() ? 0 : rows_.width(); }
  // Requests from `advisor` the pages that Gather will read for the edges at these places.
  void Request(std::span<const uint64_t> places, PageAdvisor& advisor) const;
  // Gathers the rows of the edges at these places, and appends rows of zeros up to `padded` rows. Fills `ints` for
  // categories, else `floats`. Errors: DataLoss.
  absl::Status Gather(std::span<const uint64_t> places, int64_t padded, AlignedVector<int64_t>& ints,
                      AlignedVector<float>& floats) const;
  // Pads a gathered batch anew, in place: keeps its `real` rows, and appends rows of zeros up to `padded` rows.
  void Pad(int64_t real, int64_t padded, AlignedVector<int64_t>& ints, AlignedVector<float>& floats) const;

 private:
  const EdgeRows rows_;
  const int threads_;
};

// Gathers rows of node features, which lie scattered over a mapping, or are in a feature cache if there is one.
// Threads: one at a time. A call uses up to `threads` OpenMP threads. Borrows the features.
class FeatureGather {
 public:
  // `nodes` is the number of feature rows. `rows` is the cache that dense features are read from; if it is null, they
  // are read through the mapping. From a cache, only rows that a lease holds may be gathered.
  FeatureGather(const Features& features, uint64_t nodes, int threads, const RowCache* rows = nullptr)
      : features_(features), nodes_(nodes), threads_(threads), rows_(rows) {}

  bool sparse() const { return std::holds_alternative<SparseFeatures>(features_); }

  // Requests the pages of these rows from `advisor`, and flushes it. Errors: DataLoss, since the offsets of sparse
  // rows are read.
  absl::Status Request(std::span<const NodeId> nodes, PageAdvisor& advisor);
  // Returns the number of entries in these sparse rows, or 0 for dense features. Call it with the same nodes before
  // each call of Sparse. Errors: DataLoss.
  absl::StatusOr<int64_t> CountNonzeros(std::span<const NodeId> nodes);

  // Gathers dense rows as float32. Node i is row i under the bounds `real`; its features go to the place of that row
  // under the bounds `padded` (MoveRow). `out` must have room for all padded rows.
  absl::Status Dense(std::span<const NodeId> nodes, const SegmentBounds& real, const SegmentBounds& padded,
                     std::span<float> out);
  // Gathers dense features for a subgraph with its last hop apart. Row r of `out` holds the mean of the features of
  // r's neighbours (0 without neighbours), then r's own features. Neighbours are summed in the order of the edges.
  // `out` must have room for rows of twice the width.
  absl::Status Means(const SampledSubgraph& subgraph, const SegmentBounds& real, const SegmentBounds& padded,
                     std::span<float> out);
  // Gathers sparse rows as CSR, after CountNonzeros. For the row at place p under `padded`, row_begins[p] is set to
  // the index of the row's first entry. `columns` and `values` must have room for all entries. `values` is empty if
  // the features have no values.
  absl::Status Sparse(std::span<const NodeId> nodes, const SegmentBounds& real, const SegmentBounds& padded,
                      std::span<int64_t> row_begins, std::span<int64_t> columns, std::span<float> values);

 private:
  // Returns null if there is no such row, or if it is damaged.
  const std::byte* FindRow(const DenseFeatures& dense, NodeId node) const;
  void PrefetchRow(const DenseFeatures& dense, NodeId node) const;

  const Features& features_;
  const uint64_t nodes_;
  const int threads_;
  const RowCache* const rows_;
  struct Extent {
    uint64_t begin = 0, size = 0;  // in the features' entries
    int64_t to = 0;                // place in the gathered entries
  };
  std::vector<Extent> extents_;
  std::vector<float> sums_;  // one row for each thread
};

}  // namespace permafrost::data
