// A set of small graphs divided into folds instead of the splits that it was imported with.
// Threads: pure functions; what they make is safe anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph_set.h"
#include "spec/sampling.h"

namespace permafrost::data {

// All graphs, shuffled by the seed, those of a class one after the other, classes rising. classes: of each graph, one
// number; NaN is a class of its own, the first.
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
