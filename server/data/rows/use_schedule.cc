#include "data/rows/use_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "data/sampling/edge_draw.h"

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

UseSchedule::Batch* UseSchedule::Find(UseSlot slot) {
  const size_t ahead = BatchesBefore(slot);
  return ahead < batches_.size() && !batches_[ahead].used ? &batches_[ahead] : nullptr;
}

uint64_t UseSchedule::Announce(std::span<const NodeId> rows, std::span<const NodeId> more, const Visit& known) {
  if (batches_.size() == kUseSlots || rows.size() + more.size() >= size_t{1} << kPlaceBits) return 0;
  const uint64_t number = first_ + batches_.size();
  const UseSlot slot = SlotOf(number);
  // Takes all memory first, so that a failure leaves nothing announced.
  Batch made;
  made.rows.reserve(rows.size() + more.size());
  made.after.reserve(rows.size() + more.size());
  Batch& batch = batches_.emplace_back(std::move(made));
  for (const std::span<const NodeId> part : {rows, more}) {
    for (const NodeId row : part) {
      const auto last_slot = static_cast<UseSlot>(last_[row] >> kPlaceBits);
      if (next_[row] == kNoUse) {
        next_[row] = slot;
        known(row);
      } else if (last_slot == slot) {
        continue;  // stands twice
      } else if (Batch* const before = Find(last_slot)) {
        before->after[last_[row] & ((uint32_t{1} << kPlaceBits) - 1)] = slot;
      }
      last_[row] = uint32_t{slot} << kPlaceBits | static_cast<uint32_t>(batch.rows.size());
      batch.rows.push_back(row);
      batch.after.push_back(kNoUse);
    }
  }
  return number;
}

void UseSchedule::Use(uint64_t number, const Visit& changed) {
  if (number < first_ || number >= first_ + batches_.size()) return;
  Batch& batch = batches_[number - first_];
  if (batch.used) return;
  batch.used = true;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const NodeId row = batch.rows[i];
    if (next_[row] != SlotOf(number)) continue;  // an earlier batch, announced before, uses it first
    next_[row] = Find(batch.after[i]) != nullptr ? batch.after[i] : kNoUse;
    changed(row);
  }
  std::vector<NodeId>().swap(batch.rows);
  std::vector<UseSlot>().swap(batch.after);
  while (!batches_.empty() && batches_.front().used) {
    batches_.pop_front();
    ++first_;
  }
}

}  // namespace permafrost::data
