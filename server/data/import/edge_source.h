// Gives the edges of one large graph, some at a time.
// Threads: one at a time.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "data/sort/edge_records.h"

namespace permafrost::data {

template <class Record>
class EdgeSource {
 public:
  virtual ~EdgeSource() = default;
  // Replaces `edges` by the next ones, in the order of the source, each keyed by (target, source); false at the end.
  virtual absl::StatusOr<bool> Next(std::vector<Record>& edges) = 0;
};

}  // namespace permafrost::data
