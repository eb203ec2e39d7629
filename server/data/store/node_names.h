// The names that the source gives the rows of one large graph.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Returns the name of a row of the graph: its text or its number; the row itself if there are no names. Errors:
// DataLoss.
absl::StatusOr<std::string> NameOf(const NodeNames& names, NodeId row);

// For each row of `to` the row of `from` with the same name; kNoRow where `from` has none. Looks through all names of
// both, with 16 bytes of memory a node. Errors: DataLoss.
inline constexpr int64_t kNoRow = -1;
absl::StatusOr<std::vector<int64_t>> MatchNames(const Graph& from, const Graph& to);

// The rows of these names. Looks through all names: for what a person asks. Errors: InvalidArgument with a violation
// "names[i]" for each that is none; DataLoss.
absl::StatusOr<std::vector<NodeId>> FindNames(const Graph& graph, std::span<const std::string> wanted);

}  // namespace permafrost::data
