// Copies the newest whole checkpoint of a job while the job's run writes newer ones and removes it.
// Threads: one.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include "backup/copier.h"
#include "base/id.h"

namespace permafrost::backup {

enum class CheckpointCopy {
  kWhole,  // it is in the backup
  kNone,   // the job has none yet
  kLost,   // the job had one by its record or its files; all that are there are damaged, or they are gone
};

// `state_dir` and `backup`: those of the copier. `had_one`: the record knows of a checkpoint.
// Hard links hold a checkpoint's files until they are copied, so that a removal by the run does no harm. Where the file
// system makes no links, a checkpoint that is removed while it is copied is given up for a newer one. "None" and "lost"
// are told only where the folder did not change during the look. Errors: Unavailable where it changes all the time; the
// copier's.
absl::StatusOr<CheckpointCopy> CopyNewestCheckpoint(const std::filesystem::path& state_dir,
                                                    const std::filesystem::path& backup, const JobId& id, bool had_one,
                                                    Copier& copier);

}  // namespace permafrost::backup
