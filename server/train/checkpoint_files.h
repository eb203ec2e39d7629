// Checkpoints as they lie on disk, for code that looks at them without restoring one, and without torch.
// jobs/ID/checkpoints/STEP/ holds the files that its manifest names, with their sizes and checksums.
// Threads: safe anywhere, also while the job's run writes and removes checkpoints.
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
  int64_t epochs_done = 0, batch = 0;  // whole epochs before it, and batches of the next one
  int64_t best_epoch = 0;              // 0: none yet
  absl::Time time = absl::InfinitePast();
  uint64_t bytes = 0;
  std::string damage;             // one line; empty: it is complete
  uint64_t dataset_checksum = 0;  // RunState::dataset_checksum
};

// The weights that a job exports of its checkpoint of `step`: averages of them where the job keeps averages.
std::filesystem::path ExportedWeightsFile(const std::filesystem::path& directory, int64_t step);

// Returns the checkpoints of the directory, newest first, those that were set aside among them; none if there is no
// directory. `verify`: their bytes are read and compared with the checksums, not only their sizes. Errors: those of
// reading, but for a file that is missing, which is damage.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::filesystem::path& directory, bool verify);

}  // namespace permafrost::train
