#include "data/sampling/row_table.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace permafrost::data {
namespace {

// Slots are prefetched this many nodes ahead.
constexpr size_t kAhead = 24;

// The number of entries of direct_ in one huge page of 2 MiB. A larger table reserves whole huge pages, because
// entries beyond the last whole huge page would lie in small pages.
constexpr uint64_t kHugePage = (uint64_t{2} << 20) / sizeof(uint32_t);

constexpr uint64_t kNumbers = uint64_t{1} << 32;

// At most half of the slots are taken.
uint64_t SlotsFor(uint64_t nodes) { return std::bit_ceil(std::max<uint64_t>(2 * nodes, 64)); }

}  // namespace

void RowTable::Clear() {
  first_ += kept_;
  kept_ = 0;
}

void RowTable::Reserve(uint64_t rows, std::span<const NodeId> nodes) {
  rows = std::min(rows, graph_nodes_);
  if (direct() && direct_.empty()) {
    if (graph_nodes_ > kHugePage) direct_.reserve((graph_nodes_ + kHugePage - 1) / kHugePage * kHugePage);
    direct_.assign(graph_nodes_, 0);
  }
  const bool grows = !direct() && slots_.size() < SlotsFor(rows);
  if (!grows && first_ + rows <= kNumbers) return;
  first_ = 1;
  if (grows) {
    slots_.assign(SlotsFor(rows), Slot{});
    shift_ = 64 - std::countr_zero(slots_.size());
  } else {
    std::ranges::fill(direct_, 0U);
    std::ranges::fill(slots_, Slot{});
  }
  for (uint64_t row = 0; row < kept_; ++row) {
    const auto number = static_cast<uint32_t>(first_ + row);
    if (direct()) {
      direct_[nodes[row]] = number;
      continue;
    }
    size_t at = SlotOf(nodes[row]);
    while (slots_[at].row >= first_) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {nodes[row], number};
  }
}

void RowTable::Relabel(std::span<const NodeId> found, std::vector<NodeId>& nodes, std::span<int64_t> rows) {
  const uint64_t most = kept_ + found.size();
  if (nodes.size() < most) nodes.resize(most);
  Reserve(most, nodes);
  if (direct()) {
    RelabelDirect(found, nodes.data(), rows.data());
  } else {
    RelabelHashed(found, nodes.data(), rows.data());
  }
}

void RowTable::RelabelWithin(uint64_t most, std::span<const NodeId> found, std::vector<NodeId>& nodes,
                             std::span<int64_t> rows) {
  const uint64_t end = std::max(kept_, std::min(most, kept_ + found.size()));
  if (nodes.size() < end) nodes.resize(end);
  Reserve(end, nodes);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < found.size(); ++i) {
    const NodeId node = found[i];
    size_t at = node;
    if (!direct()) {
      at = SlotOf(node);
      while (slots_[at].row >= first_ && slots_[at].node != node) at = (at + 1) & mask;
    }
    uint32_t& number = direct() ? direct_[at] : slots_[at].row;
    if (number < first_ && kept_ >= most) {
      rows[i] = kNoRow;
      continue;
    }
    if (number < first_) {
      if (!direct()) slots_[at].node = node;
      number = static_cast<uint32_t>(first_ + kept_);
      nodes[kept_++] = node;
    }
    rows[i] = static_cast<int64_t>(number - first_);
  }
}

// Relabels without a branch on whether a node is new, because the processor could not predict that branch.
void RowTable::RelabelDirect(std::span<const NodeId> found, NodeId* nodes, int64_t* rows) {
  uint32_t* const table = direct_.data();
  const auto first = static_cast<uint32_t>(first_);
  auto next = static_cast<uint32_t>(first_ + kept_);
  for (size_t i = 0; i < std::min(kAhead, found.size()); ++i) __builtin_prefetch(table + found[i], 1);
  for (size_t i = 0; i < found.size(); ++i) {
    if (i + kAhead < found.size()) __builtin_prefetch(table + found[i + kAhead], 1);
    const NodeId node = found[i];
    const uint32_t known = table[node];
    const uint32_t row = known < first ? next : known;
    table[node] = row;
    // If the node is known already, the next new node overwrites this entry.
    nodes[next - first] = node;
    rows[i] = row - first;
    next += known < first ? 1 : 0;
  }
  kept_ = static_cast<uint32_t>(next - first);
}

void RowTable::RelabelHashed(std::span<const NodeId> found, NodeId* nodes, int64_t* rows) {
  Slot* const slots = slots_.data();
  const size_t mask = slots_.size() - 1;
  const auto first = static_cast<uint32_t>(first_);
  auto next = static_cast<uint32_t>(first_ + kept_);
  for (size_t i = 0; i < std::min(kAhead, found.size()); ++i) __builtin_prefetch(slots + SlotOf(found[i]), 1);
  for (size_t i = 0; i < found.size(); ++i) {
    if (i + kAhead < found.size()) __builtin_prefetch(slots + SlotOf(found[i + kAhead]), 1);
    const NodeId node = found[i];
    size_t at = SlotOf(node);
    while (slots[at].row >= first && slots[at].node != node) at = (at + 1) & mask;
    if (slots[at].row < first) {
      slots[at] = {node, next};
      nodes[next++ - first] = node;
    }
    rows[i] = slots[at].row - first;
  }
  kept_ = static_cast<uint32_t>(next - first);
}

void DisjointRows::Clear() {
  first_ += kept_;
  kept_ = 0;
}

size_t DisjointRows::SlotOf(uint64_t pair) const {
  // Uses the top bits of the hash. Source: the finaliser of MurmurHash3.
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
