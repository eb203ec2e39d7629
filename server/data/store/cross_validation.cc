#include "data/store/cross_validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/status.h"
#include "data/store/other_splits.h"

namespace permafrost::data {
namespace {

// The checksum of the set with these folds.
uint64_t ChecksumOf(const GraphSet& set, const spec::CrossValidation& validation) {
  const uint64_t all[] = {set.checksum(), static_cast<uint64_t>(validation.folds),
                          static_cast<uint64_t>(validation.fold), validation.seed};
  return Hash64(all, sizeof(all));
}

}  // namespace

std::vector<uint32_t> ShuffledByClass(std::span<const float> classes, uint64_t seed) {
  std::vector<uint32_t> shuffled(classes.size());
  std::iota(shuffled.begin(), shuffled.end(), 0u);
  SplitMix64 random(seed, /*stream=*/0);
  Shuffle(std::span(shuffled), random);
  // With the place, so that equal classes keep it.
  std::vector<std::pair<float, size_t>> places;
  for (size_t place = 0; place < shuffled.size(); ++place) {
    const float label = classes[shuffled[place]];
    places.emplace_back(std::isnan(label) ? -std::numeric_limits<float>::infinity() : label, place);
  }
  std::ranges::sort(places);
  std::vector<uint32_t> ordered;
  ordered.reserve(places.size());
  for (const auto& [label, place] : places) ordered.push_back(shuffled[place]);
  return ordered;
}

std::array<std::vector<uint32_t>, 3> DrawFold(const spec::CrossValidation& validation, std::span<const float> classes) {
  const std::vector<uint32_t> ids = ShuffledByClass(classes, validation.seed);
  std::array<std::vector<uint32_t>, 3> splits;
  const auto folds = static_cast<size_t>(validation.folds), test = static_cast<size_t>(validation.fold);
  const size_t valid = (test + 1) % folds;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t fold = i % folds;
    const Split split = fold == test ? Split::kTest : fold == valid ? Split::kValid : Split::kTrain;
    splits[static_cast<size_t>(split)].push_back(ids[i]);
  }
  for (auto& split : splits) std::ranges::sort(split);
  return splits;
}

absl::StatusOr<std::shared_ptr<const GraphSet>> WithFold(std::shared_ptr<const GraphSet> set,
                                                         const spec::CrossValidation& validation) {
  if (validation.folds == 0) return set;
  const GraphSetSummary& summary = set->summary();
  if (validation.folds > summary.all.graphs) {
    return absl::InvalidArgumentError(
        absl::StrCat(validation.folds, " folds of a set of ", summary.all.graphs, " graphs"));
  }
  std::vector<float> classes(static_cast<size_t>(summary.all.graphs));
  if (summary.num_targets == 1) {
    PF_ASSIGN_OR_RETURN(const auto labels, set->labels());
    const bool whole = std::ranges::all_of(labels, [](float l) { return std::isnan(l) || std::floor(l) == l; });
    if (whole) classes.assign(labels.begin(), labels.end());
  }
  OtherSplits splits{.rows = DrawFold(validation, classes),
                     .name = absl::StrCat("fold ", validation.fold, " of ", validation.folds)};
  const uint64_t checksum = ChecksumOf(*set, validation);
  return WithSplits(set, std::move(splits), summary, checksum);
}

}  // namespace permafrost::data
