// Finds the rank of a job that the others wait for.
// Threads: not safe; one caller.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "train/peers.h"

namespace permafrost::train {

class StragglerWatch {
 public:
  // Takes what the ranks have done so far, by rank, at the time `now`. Returns one line about a rank that, for half a
  // minute, computed longer for a step than 1.5 times the median of the others, once for each. Times without steps of
  // all ranks, such as an evaluation, are left out.
  std::optional<std::string> Look(const std::vector<RankProgress>& ranks, absl::Duration now);

 private:
  absl::Duration window_begin_ = absl::ZeroDuration();
  std::vector<RankProgress> before_;  // at the window's begin
  int64_t slowest_ = -1;              // that stood out last; -1: none yet
  int windows_ = 0;                   // in a row in which it stood out
  std::set<int64_t> told_;
};

}  // namespace permafrost::train
