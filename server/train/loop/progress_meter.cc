#include "train/loop/progress_meter.h"

namespace permafrost::train {
namespace {
// Finer samples would only cost memory: the window holds about fifty.
constexpr absl::Duration kResolution = absl::Milliseconds(100);
}  // namespace

void ProgressMeter::Add(absl::Duration now, int64_t steps, int64_t graphs) {
  // The last sample is the present one; it becomes history when it is far enough from the one before.
  const size_t count = samples_.size();
  if (count >= 2 && samples_[count - 1].time - samples_[count - 2].time < kResolution) {
    samples_.back() = {now, steps, graphs};
  } else {
    samples_.push_back({now, steps, graphs});
  }
  while (samples_.size() > 2 && now - samples_[1].time >= kWindow) samples_.pop_front();
}

double ProgressMeter::graphs_per_second() const {
  const double seconds = absl::ToDoubleSeconds(samples_.back().time - samples_.front().time);
  return seconds > 0 ? static_cast<double>(samples_.back().graphs - samples_.front().graphs) / seconds : 0;
}

absl::Duration ProgressMeter::Eta(int64_t steps_left) const {
  const int64_t steps = samples_.back().steps - samples_.front().steps;
  if (steps <= 0) return absl::ZeroDuration();
  return (samples_.back().time - samples_.front().time) *
         (static_cast<double>(steps_left) / static_cast<double>(steps));
}

}  // namespace permafrost::train
