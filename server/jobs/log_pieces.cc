#include "jobs/log_pieces.h"

#include <utility>

#include "base/status.h"

namespace permafrost::jobs {

absl::StatusOr<JobFiles::Piece> LogPieces::Read(const JobId& id, int64_t offset, int64_t max_bytes) {
  Place place{.id = id, .offset = offset, .max_bytes = max_bytes, .changes = changes_.load(std::memory_order_acquire)};
  {
    const absl::MutexLock lock(&mu_);
    for (const std::optional<Kept>& kept : kept_) {
      if (kept && kept->place == place) return kept->piece;
    }
  }
  PF_ASSIGN_OR_RETURN(JobFiles::Piece piece, files_.ReadLog(id, offset, max_bytes));
  const absl::MutexLock lock(&mu_);
  kept_[next_] = Kept{.place = std::move(place), .piece = piece};
  next_ = (next_ + 1) % kept_.size();
  return piece;
}

}  // namespace permafrost::jobs
