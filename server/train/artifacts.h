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
absl::Status LinkArtifact(const std::filesystem::path& source, const std::filesystem::path& job_directory,
                          std::string_view name);

// CSV with the header `ROW,prediction_0,...`, where `row_name` says what `names` are of ("graph", "node"), quoted where
// they need it (RFC 4180); floats with the digits that give them back exactly. predictions: [names, outputs].
absl::Status WritePredictions(const std::filesystem::path& job_directory, std::string_view row_name,
                              const std::vector<std::string>& names, const std::vector<float>& predictions,
                              int64_t outputs);

}  // namespace permafrost::train
