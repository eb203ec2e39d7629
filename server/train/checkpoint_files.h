// Lists checkpoints on disk, for code that neither restores them nor uses torch. A checkpoint is a folder
// jobs/ID/checkpoints/STEP/ with files, and a manifest that lists the size and checksum of each file.
// Threads: thread-safe, even while the job's run writes and removes checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace permafrost::train {

inline constexpr std::string_view kCheckpointsFolder = "checkpoints";
inline constexpr std::string_view kCheckpointManifest = "state.json";
inline constexpr std::string_view kCheckpointWeights = "model.safetensors",
                                  kCheckpointAverages = "averaged.safetensors";
inline constexpr std::string_view kDamagedCheckpointPrefix = ".damaged-";

struct CheckpointInfo {
  int64_t step = 0;
  // `epochs_done` counts whole epochs, and `batch` counts the batches done in the next epoch.
  int64_t epochs_done = 0, batch = 0;
  int64_t best_epoch = 0;  // 0 if there is none yet
  absl::Time time = absl::InfinitePast();
  uint64_t bytes = 0;
  std::string damage;             // one line; empty if the checkpoint is complete
  uint64_t dataset_checksum = 0;  // same as RunState::dataset_checksum
};

// Returns the weights file that a job exports from its checkpoint of `step`. If the job keeps averages of its
// weights, this is the file of the averages.
std::filesystem::path ExportedWeightsFile(const std::filesystem::path& directory, int64_t step);

// Returns the checkpoints in the directory, newest first, including damaged ones that a run set aside. If the
// directory is missing, returns none. If `verify` is true, reads every file and compares sizes and checksums;
// otherwise compares only sizes.
// Errors: those of reading. A missing file is reported as `damage`, not as an error.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::filesystem::path& directory, bool verify);

}  // namespace permafrost::train
