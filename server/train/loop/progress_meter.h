// Throughput over the last seconds and the time that is left.
// Threads: the device thread. Pure but for the times it is given: time since the run began, which never falls.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace permafrost::train {

class ProgressMeter {
 public:
  // Samples older than this do not count.
  static constexpr absl::Duration kWindow = absl::Seconds(5);

  ProgressMeter() { samples_.push_back({absl::ZeroDuration(), 0, 0}); }

  // `steps` and `graphs`: totals of this run so far.
  void Add(absl::Duration now, int64_t steps, int64_t graphs);
  // 0 before the first sample.
  double graphs_per_second() const;
  // Estimates at the window's pace, evaluation included. Zero before the first sample.
  absl::Duration Eta(int64_t steps_left) const;

 private:
  struct Sample {
    absl::Duration time;
    int64_t steps, graphs;
  };
  std::deque<Sample> samples_;
};

}  // namespace permafrost::train
