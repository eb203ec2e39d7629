// The files that a job's users take away: jobs/ID/artifacts/NAME, each replaced whole.
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

// Gives `source`, a file of a checkpoint, a second name among the artifacts: no copy, and it outlives the checkpoint.
// A file or folder that went meanwhile is a transient error, here and in WritePredictions.
absl::Status LinkArtifact(const std::filesystem::path& source, const std::filesystem::path& job_directory,
                          std::string_view name);

// Names the rows of a table of predictions: values of `names` stand in front of those predicted.
struct NamedRows {
  std::vector<std::string> columns;  // "graph", or "node", or "source", "target" and their "time"
  std::vector<std::string> names;    // [rows * columns]
  std::vector<std::string> values;   // "prediction_0", ...
  // From this value on a cell of NaN is left empty: there is none.
  size_t empty_nan = std::numeric_limits<size_t>::max();
};

// CSV of columns and values, quoted where they need it (RFC 4180); floats with the digits that give them back exactly.
// predictions: [rows * values].
std::string PredictionsCsv(const NamedRows& rows, std::span<const float> predictions);

// The names of some of the rows that are written. Errors: end the writing.
using NameRows = std::function<absl::StatusOr<NamedRows>(std::span<const uint32_t> ids)>;
// This many rows have names in memory at once.
inline constexpr size_t kNamedAtOnce = 1024;
// Writes the same for all `ids`, in their order, piece by piece into the file. predictions: [ids * values].
absl::Status WritePredictions(const std::filesystem::path& job_directory, const NameRows& name,
                              std::span<const uint32_t> ids, std::span<const float> predictions);

}  // namespace permafrost::train
