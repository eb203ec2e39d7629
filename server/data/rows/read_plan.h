// Plans the reads that bring a batch's missing rows: in the file's order, rows that lie close together by one read.
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/store/graph.h"

namespace permafrost::data {

struct PlannedRead {
  uint64_t offset = 0;  // in the file; whole pages
  uint32_t bytes = 0;
  uint32_t first = 0, count = 0;  // of the rows that it brings
};

// rows: rising, each once. A read goes on to the next row while the gap of pages that no row needs is at most
// `gap_bytes`, and is never longer than `most_bytes`, unless one row is.
std::vector<PlannedRead> PlanReads(const StoredRows& table, std::span<const NodeId> rows, uint64_t gap_bytes,
                                   uint64_t most_bytes);

// The pages of the table that a row lies on: [first, last].
struct PageSpan {
  uint64_t first = 0, last = 0;
};
PageSpan PagesOf(const StoredRows& table, uint64_t row);

}  // namespace permafrost::data
