#include "train/turns.h"

#include <algorithm>

#include "base/status.h"

namespace permafrost::train {

absl::Status Turns::Add(std::span<const TimedRun> runs, double seconds) {
  double took = 0;
  do {
    const bool reverse = rounds_++ % 2 == 1;
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t run = reverse ? runs.size() - 1 - i : i;
      PF_ASSIGN_OR_RETURN(const double one, runs[run]());
      seconds_[run].push_back(one);
      took += one;
    }
  } while (took < seconds);
  return absl::OkStatus();
}

double Turns::Median(size_t run) const {
  std::vector<double> sorted = seconds_[run];
  const auto middle = sorted.begin() + (std::ssize(sorted) - 1) / 2;
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

}  // namespace permafrost::train
