#include "data/sampling/row_table.h"

#include <algorithm>
#include <bit>

namespace permafrost::data {
namespace {

// Nodes ahead whose slots are asked for.
constexpr size_t kAhead = 24;

// At most half of the slots are taken.
uint64_t SlotsFor(uint64_t nodes) { return std::bit_ceil(std::max<uint64_t>(2 * nodes, 64)); }

}  // namespace

void RowTable::Clear(uint64_t nodes) {
  kept_ = 0;
  used_slots_ = SlotsFor(nodes);
  shift_ = 64 - std::countr_zero(used_slots_);
  if (slots_.size() < used_slots_) slots_.resize(used_slots_);
  std::fill_n(slots_.begin(), used_slots_, kFree);
}

void RowTable::Reserve(uint64_t nodes) {
  if (SlotsFor(nodes) <= used_slots_) return;
  std::vector<uint64_t> kept;
  kept.reserve(kept_);
  std::copy_if(slots_.begin(), slots_.begin() + static_cast<int64_t>(used_slots_), std::back_inserter(kept),
               [](uint64_t slot) { return slot != kFree; });
  Clear(nodes);
  kept_ = kept.size();
  for (const uint64_t slot : kept) {
    uint64_t at = SlotOf(static_cast<NodeId>(slot >> 32));
    while (slots_[at] != kFree) at = (at + 1) & (used_slots_ - 1);
    slots_[at] = slot;
  }
}

void RowTable::Relabel(std::span<const NodeId> found, std::vector<NodeId>& nodes, std::span<int64_t> rows) {
  uint64_t* const slots = slots_.data();
  const uint64_t mask = used_slots_ - 1;
  uint64_t next = kept_;
  nodes.resize(kept_ + found.size());
  for (size_t i = 0; i < std::min(kAhead, found.size()); ++i) __builtin_prefetch(slots + SlotOf(found[i]));
  for (size_t i = 0; i < found.size(); ++i) {
    if (i + kAhead < found.size()) __builtin_prefetch(slots + SlotOf(found[i + kAhead]));
    const NodeId node = found[i];
    uint64_t at = SlotOf(node);
    while (slots[at] != kFree && slots[at] >> 32 != node) at = (at + 1) & mask;
    if (slots[at] == kFree) {
      slots[at] = uint64_t{node} << 32 | next;
      nodes[next++] = node;
    }
    rows[i] = static_cast<int64_t>(slots[at] & UINT32_MAX);
  }
  kept_ = next;
  nodes.resize(kept_);
}

}  // namespace permafrost::data
