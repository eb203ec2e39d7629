// Labels of a CSV file: a row of targets, some of which may be missing.
// Threads: pure.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {

// The targets of `line`, which is the row that `rows` read last; NaN for one that is missing: empty, nan, NaN or NA.
// Errors: InvalidArgument naming file, row and target for what is neither missing nor a finite number.
absl::Status ParseLabels(const CsvRows& rows, std::string_view line, std::vector<float>& labels);

}  // namespace permafrost::data
