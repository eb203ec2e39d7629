// GraphSetSummary as the JSON text of the store's summary section; store_bytes apart, which is the file's length.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "data/graph_set.h"

namespace permafrost::data {

std::string SummaryToJson(const GraphSetSummary& summary);
// DataLoss naming what is missing or of another type.
absl::StatusOr<GraphSetSummary> SummaryFromJson(std::string_view text);

}  // namespace permafrost::data
