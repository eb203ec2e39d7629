// Decides when a run writes its checkpoints.
// Threads: one thread. Pure but for the times it is given: time of this run since its first step began, which never
// falls.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "spec/train_options.h"

namespace permafrost::train {

class CheckpointSchedule {
 public:
  // A run's first checkpoint by time comes this early, so that a job that is killed again and again gets further each
  // time. The intervals after it double until they are CheckpointOptions::every_seconds.
  static constexpr absl::Duration kFirst = absl::Seconds(1);
  // Checkpoints by time take at most this part of a run: where one takes long, the next comes later. The first one
  // excepted, whose cost nobody knows before.
  static constexpr double kMaxPart = 0.02;

  explicit CheckpointSchedule(const spec::CheckpointOptions& options);

  // Asked at each boundary of a training step; `step`: optimizer steps done.
  bool Due(int64_t step, absl::Duration now) const;
  void OnSaved(absl::Duration begin, absl::Duration end);
  // One could not be written: the next try comes after a second, after two, four ... up to a minute, whatever is due.
  void OnFailed(absl::Duration now);

 private:
  const int64_t every_steps_;
  const absl::Duration every_;  // infinite: not by time
  absl::Duration interval_;
  absl::Duration next_;
  absl::Duration retry_interval_ = absl::ZeroDuration();  // > 0: the newest try failed
};

}  // namespace permafrost::train
