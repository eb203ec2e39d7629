// GraphSetSummary and GraphSummary as the JSON text of a store's summary section; store_bytes and adjacency_bytes
// apart, which the file's length and its table say. Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

std::string SummaryToJson(const GraphSetSummary& summary);
// DataLoss naming what is missing or of another type.
absl::StatusOr<GraphSetSummary> SummaryFromJson(std::string_view text);

std::string GraphSummaryToJson(const GraphSummary& summary);
// DataLoss naming what is of another type; what is missing keeps its default.
absl::StatusOr<GraphSummary> GraphSummaryFromJson(std::string_view text);

}  // namespace permafrost::data
