#include "data/sampling/seed_times.h"

namespace permafrost::data {

absl::Status SeedTimes::Of(std::span<const NodeId> nodes, std::vector<int64_t>& times) const {
  times.clear();
  if (same_) {
    times.assign(nodes.size(), *same_);
    return absl::OkStatus();
  }
  if (own_.empty()) return absl::OkStatus();
  times.reserve(nodes.size());
  for (const NodeId node : nodes) {
    if (!own_.Touch(node, uint64_t{node} + 1)) return own_.status();
    times.push_back(own_[node]);
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
