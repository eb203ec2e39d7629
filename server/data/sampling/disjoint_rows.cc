#include "data/sampling/disjoint_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "data/sampling/row_table.h"

namespace permafrost::data {

void DisjointRows::Clear() {
  first_ += kept_;
  kept_ = 0;
}

size_t DisjointRows::SlotOf(uint64_t pair) const {
  // Source: the finaliser of MurmurHash3, taken from the top.
  uint64_t mixed = (pair ^ (pair >> 33)) * 0xff51afd7ed558ccdU;
  mixed = (mixed ^ (mixed >> 33)) * 0xc4ceb9fe1a85ec53U;
  return static_cast<size_t>(mixed >> shift_);
}

size_t DisjointRows::Find(uint64_t pair) const {
  size_t at = SlotOf(pair);
  while (slots_[at].row >= first_ && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void DisjointRows::Reserve(uint64_t rows, std::span<const NodeId> nodes, std::span<const uint32_t> node_owners) {
  // At most half of the slots are taken.
  const uint64_t wanted = std::bit_ceil(std::max<uint64_t>(2 * rows, 64));
  if (slots_.size() >= wanted) return;
  slots_.assign(wanted, Slot{});
  shift_ = 64 - std::countr_zero(wanted);
  first_ = 1;
  for (size_t row = 0; row < kept_; ++row) {
    const uint64_t pair = PairOf(node_owners[row], nodes[row]);
    slots_[Find(pair)] = {.pair = pair, .row = first_ + row};
  }
}

void DisjointRows::Relabel(std::span<const NodeId> found, std::span<const uint32_t> owners, std::vector<NodeId>& nodes,
                           std::vector<uint32_t>& node_owners, std::span<int64_t> rows) {
  RelabelWithin(std::numeric_limits<uint64_t>::max(), found, owners, nodes, node_owners, rows);
}

void DisjointRows::RelabelWithin(uint64_t most, std::span<const NodeId> found, std::span<const uint32_t> owners,
                                 std::vector<NodeId>& nodes, std::vector<uint32_t>& node_owners,
                                 std::span<int64_t> rows) {
  Reserve(std::max(kept_, std::min(most, kept_ + found.size())), nodes, node_owners);
  for (size_t i = 0; i < found.size(); ++i) {
    const uint64_t pair = PairOf(owners[i], found[i]);
    Slot& slot = slots_[Find(pair)];
    if (slot.row < first_ && kept_ >= most) {
      rows[i] = RowTable::kNoRow;
      continue;
    }
    if (slot.row < first_) {
      slot = {.pair = pair, .row = first_ + kept_++};
      nodes.push_back(found[i]);
      node_owners.push_back(owners[i]);
    }
    rows[i] = static_cast<int64_t>(slot.row - first_);
  }
}

}  // namespace permafrost::data
