#include "data/rows/expected_draws.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "data/sampling/adjacency_reads.h"

namespace permafrost::data {
namespace {

constexpr NodeId kAskEvery = 1 << 16;

// The number of `batches` with at least one of `draws` that are spread over them.
float BatchesWith(double draws, double batches) { return static_cast<float>(-batches * std::expm1(-draws / batches)); }

}  // namespace

absl::Status AddExpectedDraws(const GraphView& view, std::span<const NodeId> seeds, int64_t batch_size,
                              std::span<const int64_t> fan_outs, const std::function<bool()>& keep_going,
                              std::span<float> sums) {
  if (seeds.empty()) return absl::OkStatus();
  const double batches = std::ceil(static_cast<double>(seeds.size()) / static_cast<double>(batch_size));
  std::vector<float> found(view.nodes), next, all(view.nodes);  // of the last hop; of all hops
  for (const NodeId seed : seeds) found[seed] = all[seed] = 1;
  for (const int64_t fan_out : fan_outs) {
    next.assign(view.nodes, 0);
    ReadFaults faults;
    {
      AdjacencyReads reads(view.in, faults);
      for (NodeId node = 0; node < view.nodes; ++node) {
        if (node % kAskEvery == 0 && !keep_going()) return absl::CancelledError("stopped while draws were estimated");
        if (found[node] == 0) continue;
        const Adjacency::Extent extent = reads.Of(node);
        if (extent.size() == 0 || !reads.Touch(extent.begin, extent.end)) continue;
        const double chance =
            fan_out < 0 ? 1 : std::min(1.0, static_cast<double>(fan_out) / static_cast<double>(extent.size()));
        const auto each = static_cast<float>(found[node] * chance);
        for (uint64_t place = extent.begin; place < extent.end; ++place) next[reads.Row(place, node)] += each;
      }
    }
    if (absl::Status status = StatusOf(faults, view.in); !status.ok()) return status;
    for (size_t node = 0; node < view.nodes; ++node) {
      all[node] += next[node];
      next[node] = BatchesWith(next[node], batches);
    }
    std::swap(found, next);
  }
  for (size_t node = 0; node < view.nodes; ++node) sums[node] += BatchesWith(all[node], batches);
  return absl::OkStatus();
}

}  // namespace permafrost::data
