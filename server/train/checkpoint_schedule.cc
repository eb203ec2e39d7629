#include "train/checkpoint_schedule.h"

#include <algorithm>

namespace permafrost::train {
namespace {

constexpr absl::Duration kFirstRetry = absl::Seconds(1);
constexpr absl::Duration kLastRetry = absl::Minutes(1);

}  // namespace

CheckpointSchedule::CheckpointSchedule(const spec::CheckpointOptions& options)
    : every_steps_(options.every_steps),
      every_(options.every_seconds > 0 ? absl::Seconds(options.every_seconds) : absl::InfiniteDuration()),
      interval_(every_ == absl::InfiniteDuration() ? every_ : std::min(every_, kFirst)),
      next_(interval_) {}

bool CheckpointSchedule::Due(int64_t step, absl::Duration now) const {
  if (retry_interval_ > absl::ZeroDuration()) return now >= next_;
  return now >= next_ || (every_steps_ > 0 && step % every_steps_ == 0);
}

void CheckpointSchedule::OnSaved(absl::Duration begin, absl::Duration end) {
  retry_interval_ = absl::ZeroDuration();
  if (every_ == absl::InfiniteDuration()) {
    next_ = every_;
    return;
  }
  interval_ = std::min(every_, 2 * interval_);
  next_ = end + std::max(interval_, (end - begin) * (1 / kMaxPart - 1));
}

void CheckpointSchedule::OnFailed(absl::Duration now) {
  retry_interval_ = std::clamp(2 * retry_interval_, kFirstRetry, kLastRetry);
  next_ = now + retry_interval_;
}

}  // namespace permafrost::train
