// A dataset with other splits than its own, or another summary, and all else as it is. If the summary says another
// number of targets than the dataset has, all labels are missing: they are absent.
// Threads: pure functions; what they make is safe anywhere, and keeps the dataset alive.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"
#include "spec/sampling.h"

namespace permafrost::data {

struct OtherSplits {
  std::array<std::vector<uint32_t>, 3> rows;  // by Split: graphs or nodes of the dataset, rising
  std::string name;                           // of the summary
};

// `summary`: what is told of the set but for its splits, whose sizes are measured here. `checksum`: of what comes out,
// which differs wherever the splits do. Errors: DataLoss from the offsets.
absl::StatusOr<std::shared_ptr<const GraphSet>> WithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits,
                                                           GraphSetSummary summary, uint64_t checksum);

// `summary`: what is told of the graph but for its splits.
std::shared_ptr<const Graph> WithSplits(std::shared_ptr<const Graph> graph, OtherSplits splits, GraphSummary summary);

// `summary`: what is told of the graph; the sizes and what there is are its own.
std::shared_ptr<const Graph> WithSummary(std::shared_ptr<const Graph> graph, GraphSummary summary);

// A set of small graphs divided into folds instead of the splits that it was imported with.
// Threads: pure functions; what they make is safe anywhere.

// Returns all graphs, shuffled by the seed, but class by class, with classes rising. classes: a number for each graph;
// NaN is a class of its own, the first.
std::vector<uint32_t> ShuffledByClass(std::span<const float> classes, uint64_t seed);

// Graphs by split, ids rising. In the order of ShuffledByClass they are dealt to the folds one after the other, so that
// folds differ by one graph at most, in all and of each class. Fold `fold` is the test split, the next one (after the
// last the first) validation, and the others train.
std::array<std::vector<uint32_t>, 3> DrawFold(const spec::CrossValidation& validation, std::span<const float> classes);

// The set with these splits, and all else as it is; `set` itself where there are no folds. Classes are the labels where
// there is one a graph and all are whole numbers; else all graphs are of one class. Errors: DataLoss from the labels;
// InvalidArgument for more folds than graphs.
absl::StatusOr<std::shared_ptr<const GraphSet>> WithFold(std::shared_ptr<const GraphSet> set,
                                                         const spec::CrossValidation& validation);

}  // namespace permafrost::data
