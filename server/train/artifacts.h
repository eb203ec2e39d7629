// The files that a job's users take away: jobs/ID/artifacts/NAME, each replaced whole.
// Threads: the device thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace permafrost::train {

// Gives `source`, a file of a checkpoint, a second name among the artifacts: no copy, and it outlives the checkpoint.
// A file or folder that went meanwhile is a transient error, here and in WritePredictions.
absl::Status LinkArtifact(const std::filesystem::path& source, const std::filesystem::path& job_directory,
                          std::string_view name);

// What the rows of a table of predictions are of: values of `names` stand in front of those predicted.
struct NamedRows {
  std::vector<std::string> columns;  // "graph", or "node", or "source" and "target"
  std::vector<std::string> names;    // [rows * columns]
  std::vector<std::string> values;   // "prediction_0", ...
};

// CSV of columns and values, quoted where they need it (RFC 4180); floats with the digits that give them back exactly.
// predictions: [rows * values].
std::string PredictionsCsv(const NamedRows& rows, const std::vector<float>& predictions);
absl::Status WritePredictions(const std::filesystem::path& job_directory, const NamedRows& rows,
                              const std::vector<float>& predictions);

}  // namespace permafrost::train
