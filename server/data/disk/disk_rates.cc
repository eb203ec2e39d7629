#include "data/disk/disk_rates.h"

#include <algorithm>

namespace permafrost {

uint64_t DiskRates::gap_bytes() const {
  // Beyond it a gap costs memory and nothing that was measured says that it gains.
  constexpr double kMost = 1 << 20;
  if (seconds_per_byte <= 0) return seconds_per_read > 0 ? static_cast<uint64_t>(kMost) : 0;
  const auto bytes = static_cast<uint64_t>(std::min(seconds_per_read / seconds_per_byte, kMost));
  return bytes / kDiskPageBytes * kDiskPageBytes;
}

int ChooseDepth(std::span<const DepthSample> samples) {
  double best = 0;
  for (const DepthSample& sample : samples) best = std::max(best, sample.bytes_per_second);
  int depth = 0;
  for (const DepthSample& sample : samples) {
    const bool smaller = depth == 0 || sample.depth < depth;
    if (smaller && sample.bytes_per_second >= 0.95 * best) depth = sample.depth;
  }
  return std::max(depth, 1);
}

ReadLine FitReads(std::span<const ReadSample> samples) {
  // Each error is divided by the time itself, so that long reads do not outweigh short ones.
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const ReadSample& sample : samples) {
    if (sample.seconds <= 0) continue;
    const double weight = 1 / (sample.seconds * sample.seconds);
    w += weight;
    wx += weight * sample.bytes;
    wxx += weight * sample.bytes * sample.bytes;
    wy += weight * sample.seconds;
    wxy += weight * sample.bytes * sample.seconds;
  }
  if (w == 0 || wxx == 0) return {};
  const double determinant = w * wxx - wx * wx;
  // Of one size nothing tells the two parts apart; a part below zero is left out and the other fitted alone.
  const ReadLine by_byte{.seconds_per_read = 0, .seconds_per_byte = wxy / wxx};
  if (determinant <= 1e-9 * w * wxx) return by_byte;
  const double slope = (w * wxy - wx * wy) / determinant;
  const double constant = (wxx * wy - wx * wxy) / determinant;
  if (constant < 0) return by_byte;
  if (slope < 0) return {.seconds_per_read = wy / w, .seconds_per_byte = 0};
  return {.seconds_per_read = constant, .seconds_per_byte = slope};
}

}  // namespace permafrost
