// Graphs dealt into batches of nearly equal size: the larger of them first, each to the batch with the least so far.
// Source: Graham 1969, "Bounds on multiprocessing timing anomalies" (longest processing time first).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace permafrost::data {

struct GraphSize {
  int64_t nodes = 0, edges = 0;
  bool operator==(const GraphSize&) const = default;
};

// The most that a batch may hold; 0: no bound.
struct DealLimits {
  int64_t graphs = 0, nodes = 0, edges = 0;
};

// `order` lists graphs by their index in `sizes`. Brings the larger to the front, by classes of size (nodes and edges)
// that lie 10 % apart, so that graphs of nearly equal size stay in their order.
void LargerFirst(std::span<const GraphSize> sizes, std::span<uint32_t> order);
// The same by size itself: only graphs of equal size stay in their order, so that the sizes of what Deal makes of it
// are the same for every order.
void LargestFirst(std::span<const GraphSize> sizes, std::span<uint32_t> order);

// The batch, 0..batches-1, of each entry of `order`: the one whose nodes or edges, whichever are the larger part of the
// mean batch's, are the least so far. No batch is empty if there are as many graphs. O(n log n). nullopt: a limit is in
// the way.
std::optional<std::vector<uint32_t>> Deal(std::span<const GraphSize> sizes, std::span<const uint32_t> order,
                                          int64_t batches, const DealLimits& limits);

// The least number of batches, as far as bisection finds it, that Deal makes of LargestFirst within the limits, of
// which none is less than a graph.
int64_t LeastBatches(std::span<const GraphSize> sizes, const DealLimits& limits);

// Limits that Deal of LargestFirst into `batches` keeps, with little room more, and that are within `limits`, which it
// keeps too.
DealLimits TightLimits(std::span<const GraphSize> sizes, int64_t batches, const DealLimits& limits);

}  // namespace permafrost::data
