// Pieces of logs as they were read last, so that many who follow one log, each at its present end, have it read once:
// to open and search the files anew for each of 200 streams was 1.5 % of the samples of a training's profile.
// Threads: all methods are safe anywhere; Read may wait for the disk. Borrows the files.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/id.h"
#include "jobs/job_files.h"

namespace permafrost::jobs {

class LogPieces {
 public:
  explicit LogPieces(const JobFiles& files) : files_(files) {}

  // After each change of any log: what was read before is not given again.
  void Forget() { changes_.fetch_add(1, std::memory_order_acq_rel); }
  // As JobFiles::ReadLog, as of now or of the same call since the last Forget.
  absl::StatusOr<JobFiles::Piece> Read(const JobId& id, int64_t offset, int64_t max_bytes);

 private:
  struct Place {
    JobId id;
    int64_t offset = 0, max_bytes = 0;
    uint64_t changes = 0;  // seen before it was read
    bool operator==(const Place&) const = default;
  };
  struct Kept {
    Place place;
    JobFiles::Piece piece;
  };

  const JobFiles& files_;
  std::atomic<uint64_t> changes_ = 0;
  absl::Mutex mu_;
  // Each stream asks for the new lines, and then whether there are more; few jobs write at a time.
  std::array<std::optional<Kept>, 4> kept_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;  // the one whose place the next piece takes
};

}  // namespace permafrost::jobs
