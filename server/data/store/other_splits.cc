#include "data/store/other_splits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/status.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {
namespace {

class SetWithSplits final : public DerivedSet {
 public:
  SetWithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits, GraphSetSummary summary, uint64_t checksum)
      : DerivedSet(std::move(set), std::move(summary), checksum), splits_(std::move(splits.rows)) {
    summary_.split_name = std::move(splits.name);
  }

  // Computes the summary's statistics for the new splits. Until this call they are those of the set.
  absl::Status Measure() {
    PF_ASSIGN_OR_RETURN(const auto nodes, node_offsets());
    PF_ASSIGN_OR_RETURN(const auto edges, edge_offsets());
    for (size_t i = 0; i < splits_.size(); ++i) summary_.splits[i] = ComputeStatistics(nodes, edges, splits_[i]);
    return CheckIntact();
  }

  absl::StatusOr<std::span<const uint32_t>> split(Split split) const override {
    return std::span(splits_[static_cast<size_t>(split)]);
  }
  absl::StatusOr<std::span<const float>> labels() const override {
    if (summary_.num_targets != set_->summary().num_targets) return std::span<const float>();
    return set_->labels();
  }

 private:
  const std::array<std::vector<uint32_t>, 3> splits_;
};

class GraphWithSummary : public DerivedGraph {
 public:
  GraphWithSummary(std::shared_ptr<const Graph> graph, GraphSummary summary)
      : DerivedGraph(std::move(graph), std::move(summary)) {
    if (view_.num_targets == summary_.num_targets) return;
    view_.num_targets = summary_.num_targets;
    view_.labels = {};
  }
};

class GraphWithSplits final : public GraphWithSummary {
 public:
  GraphWithSplits(std::shared_ptr<const Graph> graph, OtherSplits splits, GraphSummary summary)
      : GraphWithSummary(std::move(graph), std::move(summary)), splits_(std::move(splits.rows)) {
    summary_.split_name = std::move(splits.name);
    for (size_t i = 0; i < splits_.size(); ++i) {
      view_.splits[i] = Column<NodeId>(splits_[i]);
      summary_.split_nodes[i] = std::ssize(splits_[i]);
    }
  }

 private:
  const std::array<std::vector<NodeId>, 3> splits_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const GraphSet>> WithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits,
                                                           GraphSetSummary summary, uint64_t checksum) {
  auto made = std::make_shared<SetWithSplits>(std::move(set), std::move(splits), std::move(summary), checksum);
  PF_RETURN_IF_ERROR(made->Measure());
  return made;
}

std::shared_ptr<const Graph> WithSplits(std::shared_ptr<const Graph> graph, OtherSplits splits, GraphSummary summary) {
  return std::make_shared<GraphWithSplits>(std::move(graph), std::move(splits), std::move(summary));
}

std::shared_ptr<const Graph> WithSummary(std::shared_ptr<const Graph> graph, GraphSummary summary) {
  return std::make_shared<GraphWithSummary>(std::move(graph), std::move(summary));
}

namespace {

// Returns the checksum of the set with these folds.
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
  // Sorting by (class, place) keeps the shuffled order within a class.
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
