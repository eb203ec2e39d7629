#include "data/sampling/sample_budget.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace permafrost::data {

void CheckSampleBudget(const NeighborSamplingOptions& options, Violations& violations) {
  const auto check = [&](const char* field, int64_t bound) {
    if (bound < 0 || bound > spec::kMaxBudget) {
      violations.Add(field, absl::StrCat(bound, " is outside 0..", spec::kMaxBudget, "; 0: no bound"));
    } else if (bound > 0 && options.sampler == spec::SamplerKind::kLabor) {
      violations.Add(field,
                     "is given with sampler labor, which draws any number of a node's edges; accepted: with sampler "
                     "neighbor");
    }
  };
  check("max_nodes", options.max_nodes);
  check("max_edges", options.max_edges);
  if (options.max_nodes > 0 && options.last_hop_apart) {
    violations.Add("max_nodes", "is given with last_hop_apart, whose last hop has no rows; accepted: without");
  }
}

int64_t FanOutWithin(std::vector<int64_t>& most, int64_t left, int64_t fan_out) {
  // The targets with the fewest edges draw all that they can, and the others share what that leaves.
  std::ranges::sort(most);
  for (size_t i = 0; i < most.size(); ++i) {
    const int64_t share = left / static_cast<int64_t>(most.size() - i);
    if (most[i] > share) return share;
    left -= most[i];
  }
  return fan_out;
}

}  // namespace permafrost::data
