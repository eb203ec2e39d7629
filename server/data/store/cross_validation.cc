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
#include "data/store/statistics.h"

namespace permafrost::data {
namespace {

class FoldedSet final : public GraphSet {
 public:
  FoldedSet(std::shared_ptr<const GraphSet> set, const CrossValidation& validation,
            std::array<std::vector<uint32_t>, 3> splits)
      : set_(std::move(set)), validation_(validation), splits_(std::move(splits)), summary_(set_->summary()) {}

  // The summary's splits are those of the set until this.
  absl::Status Measure() {
    PF_ASSIGN_OR_RETURN(const auto nodes, node_offsets());
    PF_ASSIGN_OR_RETURN(const auto edges, edge_offsets());
    for (size_t i = 0; i < splits_.size(); ++i) summary_.splits[i] = ComputeStatistics(nodes, edges, splits_[i]);
    summary_.split_name = absl::StrCat("fold ", validation_.fold, " of ", validation_.folds);
    return absl::OkStatus();
  }

  const GraphSetSummary& summary() const override { return summary_; }
  uint64_t checksum() const override {
    const uint64_t all[] = {set_->checksum(), static_cast<uint64_t>(validation_.folds),
                            static_cast<uint64_t>(validation_.fold), validation_.seed};
    return Hash64(all, sizeof(all));
  }
  absl::StatusOr<std::span<const uint64_t>> node_offsets() const override { return set_->node_offsets(); }
  absl::StatusOr<std::span<const uint64_t>> edge_offsets() const override { return set_->edge_offsets(); }
  absl::StatusOr<std::span<const uint32_t>> edge_source() const override { return set_->edge_source(); }
  absl::StatusOr<std::span<const uint32_t>> edge_target() const override { return set_->edge_target(); }
  absl::StatusOr<FeatureTable> node_features() const override { return set_->node_features(); }
  absl::StatusOr<FeatureTable> edge_features() const override { return set_->edge_features(); }
  absl::StatusOr<std::span<const float>> labels() const override { return set_->labels(); }
  absl::StatusOr<std::span<const uint32_t>> split(Split split) const override {
    return std::span(splits_[static_cast<size_t>(split)]);
  }
  absl::Status CheckIntact() const override { return set_->CheckIntact(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const override {
    return set_->VerifyAll(progress);
  }
  uint64_t mapped_bytes() const override { return set_->mapped_bytes(); }

 private:
  const std::shared_ptr<const GraphSet> set_;
  const CrossValidation validation_;
  const std::array<std::vector<uint32_t>, 3> splits_;
  GraphSetSummary summary_;
};

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

std::array<std::vector<uint32_t>, 3> DrawFold(const CrossValidation& validation, std::span<const float> classes) {
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
                                                         const CrossValidation& validation) {
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
  auto folded = std::make_shared<FoldedSet>(std::move(set), validation, DrawFold(validation, classes));
  PF_RETURN_IF_ERROR(folded->Measure());
  PF_RETURN_IF_ERROR(folded->CheckIntact());
  return folded;
}

}  // namespace permafrost::data
