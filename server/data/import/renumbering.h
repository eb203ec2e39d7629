// The rows that the store gives to the source's rows.
// Threads: const methods are safe anywhere. Memory: 4 bytes a node, or none.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

class Renumbering {
 public:
  Renumbering() = default;  // none: every row is its own
  // old_of_new: each row of the source once, in the store's order.
  static Renumbering FromOrder(std::span<const NodeId> old_of_new);

  bool none() const { return new_of_old_.empty(); }
  NodeId New(NodeId old) const { return none() ? old : new_of_old_[old]; }
  // For messages: looks through all rows.
  NodeId Old(NodeId row) const;
  // Not where there is none.
  std::vector<NodeId> OldOfNew() const;

 private:
  std::vector<NodeId> new_of_old_;
};

// The source's rows as node_numbers, where rows were renumbered; sets summary.named then.
absl::Status WriteSourceRows(const Renumbering& renumbering, GraphWriter& writer, GraphSummary& summary);

}  // namespace permafrost::data
