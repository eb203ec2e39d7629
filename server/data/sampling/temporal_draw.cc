#include "data/sampling/temporal_draw.h"

#include <algorithm>

#include "data/sampling/fan_out.h"

namespace permafrost::data {

int64_t TemporalDraw::Draw(Adjacency::Extent extent, const int64_t* timestamps, std::optional<int64_t> before,
                           int64_t fan_out, SplitMix64 random, std::span<uint64_t> places) {
  earlier_.clear();
  for (uint64_t i = 0; i < extent.size(); ++i) {
    if (!before || timestamps[i] < *before) earlier_.push_back(i);
  }
  const auto put = [&](size_t at, uint64_t edge) { places[at] = extent.begin + edge; };
  const uint64_t found = earlier_.size();
  const bool all = fan_out == spec::kAllNeighbors || (!replace_ && found <= static_cast<uint64_t>(fan_out));
  if (all || found == 0) {
    for (size_t i = 0; i < found; ++i) put(i, earlier_[i]);
    return static_cast<int64_t>(found);
  }
  if (strategy_ == spec::TemporalSampling::kLast) {
    const auto later = [&](uint64_t a, uint64_t b) {
      return timestamps[a] != timestamps[b] ? timestamps[a] > timestamps[b] : a > b;
    };
    std::ranges::nth_element(earlier_, earlier_.begin() + fan_out, later);
    std::sort(earlier_.begin(), earlier_.begin() + fan_out);
    for (size_t i = 0; i < static_cast<size_t>(fan_out); ++i) put(i, earlier_[i]);
    return fan_out;
  }
  const int64_t drawn = draw_.Draw({.begin = 0, .end = found}, nullptr, fan_out, random, places);
  for (size_t i = 0; i < static_cast<size_t>(drawn); ++i) put(i, earlier_[places[i]]);
  return drawn;
}

}  // namespace permafrost::data
