#include "nn/link_metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "nn/metrics.h"

namespace permafrost::nn {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

bool AnyNan(std::span<const float> values) {
  return std::ranges::any_of(values, [](float value) { return std::isnan(value); });
}

double HitsAt(int64_t k, const LinkScores& scores) {
  if (std::ssize(scores.negatives) < k) return 1;
  std::vector<float> negatives(scores.negatives.begin(), scores.negatives.end());
  const auto kth = negatives.begin() + (k - 1);
  std::ranges::nth_element(negatives, kth, std::greater());
  const auto hits = std::ranges::count_if(scores.links, [&](float score) { return score > *kth; });
  return static_cast<double>(hits) / static_cast<double>(scores.links.size());
}

std::vector<float> RanksAmongShared(const LinkScores& scores) {
  std::vector<float> ranks(scores.links.size(), std::numeric_limits<float>::quiet_NaN());
  if (AnyNan(scores.negatives)) return ranks;
  std::vector<float> negatives(scores.negatives.begin(), scores.negatives.end());
  std::ranges::sort(negatives);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (std::isnan(scores.links[i])) continue;
    const auto equal = std::ranges::equal_range(negatives, scores.links[i]);
    ranks[i] = static_cast<float>(1 + static_cast<double>(negatives.end() - equal.end()) +
                                  static_cast<double>(equal.size()) / 2);
  }
  return ranks;
}

}  // namespace

std::vector<float> RanksOf(const LinkScores& scores) {
  if (scores.share) return RanksAmongShared(scores);
  const size_t links = scores.links.size(), each = links == 0 ? 0 : scores.negatives.size() / links;
  std::vector<float> ranks;
  for (size_t i = 0; i < links; ++i) {
    const float score = scores.links[i];
    const auto negatives = scores.negatives.subspan(i * each, each);
    if (std::isnan(score) || AnyNan(negatives)) {
      ranks.push_back(std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const auto above = std::ranges::count_if(negatives, [&](float other) { return other > score; });
    const auto equal = std::ranges::count(negatives, score);
    ranks.push_back(1 + static_cast<float>(above) + static_cast<float>(equal) / 2);
  }
  return ranks;
}

double ComputeLinkMetric(spec::Metric metric, const LinkScores& scores) {
  if (scores.links.empty() || AnyNan(scores.links) || AnyNan(scores.negatives)) return kNoValue;
  switch (metric) {
    case spec::Metric::kMrr: {
      double sum = 0;
      for (const float rank : RanksOf(scores)) sum += 1 / static_cast<double>(rank);
      return sum / static_cast<double>(scores.links.size());
    }
    case spec::Metric::kHitsAt10:
      return HitsAt(10, scores);
    case spec::Metric::kHitsAt20:
      return HitsAt(20, scores);
    case spec::Metric::kHitsAt50:
      return HitsAt(50, scores);
    case spec::Metric::kHitsAt100:
      return HitsAt(100, scores);
    default: {
      std::vector<float> all(scores.links.begin(), scores.links.end());
      all.insert(all.end(), scores.negatives.begin(), scores.negatives.end());
      std::vector<float> labels(all.size(), 0.0F);
      std::fill_n(labels.begin(), scores.links.size(), 1.0F);
      return ComputeMetric(metric, spec::Loss::kBce, all, labels, 1);
    }
  }
}

}  // namespace permafrost::nn
