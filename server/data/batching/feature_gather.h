// Rows of node features, gathered from all over a mapping, or from a feature cache where there is one.
// Threads: one at a time, which uses up to `threads` OpenMP threads within a call. Borrows the features.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/batching/padded_rows.h"
#include "data/rows/row_cache.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/sampling/page_advisor.h"
#include "data/store/graph.h"

namespace permafrost::data {

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
  // As CSR, after CountNonzeros. row_begins: begin of each row at its padded place; columns and values: room for all
  // entries; values is empty where the features' are.
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
