// The files that a job's users take away: jobs/ID/artifacts/NAME. Each is replaced as a whole.
// Threads: the device thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace permafrost::train {

// Links `source`, a file of a checkpoint, into the artifacts as `name`. The link is not a copy, and outlives the
// checkpoint.
// Errors: transient if a file or folder disappeared meanwhile, here and in WritePredictions.
absl::Status LinkArtifact(const std::filesystem::path& source, const std::filesystem::path& job_directory,
                          std::string_view name);

// The columns of a table of predictions, and the names in its rows. In each row the names stand before the predicted
// values.
struct NamedRows {
  std::vector<std::string> columns;  // "graph"; or "node"; or "source", "target" and their "time"
  std::vector<std::string> names;    // [rows * columns]
  std::vector<std::string> values;   // "prediction_0", ...
  // In value columns from this index on, a NaN becomes an empty cell, because there is no value.
  size_t empty_nan = std::numeric_limits<size_t>::max();
};

// Returns a CSV of columns and values, quoted where needed (RFC 4180). Floats have the digits that restore them
// exactly. `predictions` is [rows * values].
std::string PredictionsCsv(const NamedRows& rows, std::span<const float> predictions);

// Returns the names of the rows with these ids. An error ends the writing.
using NameRows = std::function<absl::StatusOr<NamedRows>(std::span<const uint32_t> ids)>;
// The number of rows whose names are in memory at once.
inline constexpr size_t kNamedAtOnce = 1024;
// Writes a CSV like that of PredictionsCsv for all `ids`, in their order, piece by piece into the file. `predictions`
// is [ids * values].
absl::Status WritePredictions(const std::filesystem::path& job_directory, const NameRows& name,
                              std::span<const uint32_t> ids, std::span<const float> predictions);

}  // namespace permafrost::train
