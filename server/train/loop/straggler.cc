#include "train/loop/straggler.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace permafrost::train {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(10);
constexpr int kWindows = 3;
constexpr double kSlow = 1.5;

// Returns the seconds that a rank computed for a step between two reports; nullopt: it did no step, or began anew.
std::optional<double> ComputeSeconds(const RankProgress& before, const RankProgress& now) {
  const int64_t steps = now.steps - before.steps;
  if (steps <= 0) return std::nullopt;
  const double seconds = (now.seconds - before.seconds) - (now.exchange_seconds - before.exchange_seconds);
  return std::max(0.0, seconds) / static_cast<double>(steps);
}

// The lower one of two in the middle.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

std::optional<std::string> StragglerWatch::Look(const std::vector<RankProgress>& ranks, absl::Duration now) {
  if (before_.size() != ranks.size()) {
    before_ = ranks;
    window_begin_ = now;
    return std::nullopt;
  }
  if (now - window_begin_ < kWindow) return std::nullopt;
  std::vector<double> seconds;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::optional<double> of_rank = ComputeSeconds(before_[r], ranks[r]);
    if (of_rank) seconds.push_back(*of_rank);
  }
  // Steps may take longer than a window, and evaluation has none.
  if (seconds.size() != ranks.size() || seconds.size() < 2) return std::nullopt;
  before_ = ranks;
  window_begin_ = now;
  const auto most = std::ranges::max_element(seconds);
  const int64_t rank = most - seconds.begin();
  const double slowest = *most;
  seconds.erase(most);
  const double others = Median(std::move(seconds));
  if (slowest <= kSlow * others) {
    windows_ = 0;
    return std::nullopt;
  }
  windows_ = rank == slowest_ ? windows_ + 1 : 1;
  slowest_ = rank;
  if (windows_ < kWindows || !told_.insert(rank).second) return std::nullopt;
  const std::string& address = ranks[static_cast<size_t>(rank)].address;
  return absl::StrFormat("rank %d (%s) keeps the others waiting: it computes %.3g ms a step, and they %.3g ms", rank,
                         address.empty() ? "this daemon" : address, 1e3 * slowest, 1e3 * others);
}

}  // namespace permafrost::train
