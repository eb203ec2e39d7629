// After how many training shapes a cache freezes.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace permafrost::graphcache {

// Sizes of a train split's graphs; standard deviations are over the population.
struct GraphSizes {
  int64_t graphs = 0;
  double std_nodes = 0, std_edges = 0;
};

struct FreezePoint {
  int64_t freeze_at = 0;      // distinct training shapes; 0: the cache never freezes by itself
  double effective_size = 0;  // eff_2d of the formula; 0 where it was not used
  std::string no_op_reason;   // one line, where freeze_at is 0
  bool operator==(const FreezePoint&) const = default;
};

// `explicit_freeze_at` where it is positive; else #10689's
//   eff_2d = sqrt(B) * std(nodes) * sqrt(B) * std(edges) * 2 * pi,  freeze_at = max(5, int(sqrt(eff_2d)))
// with B = batch_size (graphs). Without graphs, or where a standard deviation is 0 or not finite, freezing is a no-op.
FreezePoint FindFreezePoint(int64_t explicit_freeze_at, int64_t batch_size, const GraphSizes& sizes);

}  // namespace permafrost::graphcache
