// Rows of edges, gathered from all over a mapping into padded batches.
// Threads: one at a time, which uses up to `threads` OpenMP threads within a call. Borrows the graph.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/aligned_vector.h"
#include "data/sampling/page_advisor.h"
#include "data/store/edge_rows.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
