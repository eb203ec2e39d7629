// The files that a job's users download: jobs/ID/artifacts/NAME. Each file is replaced as a whole.
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

// Makes a hard link `name` in the artifacts to `source`, a file of a checkpoint. The link outlives the checkpoint.
// Errors: here and in WritePredictions, a transient error if a file or folder disappeared meanwhile.
absl::Status LinkArtifact(const std::filesystem::path& source, const std::filesystem::path& job_directory,
                          std::string_view name);

// The headers of a table of predictions, and the names of its rows. Each row begins with its names, one for each of
// `columns`, and then has its predicted values.
struct NamedRows {
  std::vector<std::string> columns;  // "graph"; or "node"; or "source", "target" and, if links have times, "time"
  std::vector<std::string> names;    // [rows * columns]
  std::vector<std::string> values;   // headers of the predicted values: "prediction_0", ...
  // The index of the first value column in which values may be absent. In this column and all later ones, a NaN means
  // an absent value and becomes an empty cell.
  size_t empty_nan = std::numeric_limits<size_t>::max();
};

// Returns a CSV of names and predictions, quoted where needed (RFC 4180). Floats have enough digits to be restored
// exactly. `predictions` is [rows * values].
std::string PredictionsCsv(const NamedRows& rows, std::span<const float> predictions);

// Returns the names of the rows with these ids. After an error, WritePredictions fails.
using NameRows = std::function<absl::StatusOr<NamedRows>(std::span<const uint32_t> ids)>;
// The number of rows whose names are in memory at once.
inline constexpr size_t kNamedAtOnce = 1024;
// Writes the CSV of PredictionsCsv for all `ids`, in their order, piece by piece into a file. `predictions` is [ids *
// values].
absl::Status WritePredictions(const std::filesystem::path& job_directory, const NameRows& name,
                              std::span<const uint32_t> ids, std::span<const float> predictions);

}  // namespace permafrost::train
