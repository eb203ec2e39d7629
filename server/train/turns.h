// Times of several runs that are to be compared, taken in turns: what slows the machine meanwhile slows them all.
// Threads: values and functions of the caller's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace permafrost::train {

// Runs once, and says how many seconds it took.
using TimedRun = std::function<absl::StatusOr<double>()>;

// The seconds of some runs, by run and round.
class Turns {
 public:
  explicit Turns(size_t runs) : seconds_(runs) {}

  // Runs all of `runs`, as many as were announced, once in each round; in every second round, counted over all calls,
  // in reverse order. One round, and more until the runs of this call took `seconds` together. Errors: of a run.
  absl::Status Add(std::span<const TimedRun> runs, double seconds);
  // The median of the run's seconds; for an even number of them the lower one in the middle. After Add.
  double Median(size_t run) const;

 private:
  size_t rounds_ = 0;
  std::vector<std::vector<double>> seconds_;
};

}  // namespace permafrost::train
