// The options that decide which graphs share a batch and how neighbours are drawn. Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/enum_names.h"
#include "spec/field.h"

namespace permafrost::spec {

enum class BatchingKind {
  kRandom,    // shuffled graphs, cut into batches of batch_size
  kBalanced,  // as many batches as kRandom, with nearly equal numbers of nodes and edges
  // The fewest possible batches, of nearly equal size, each with at most max_nodes, max_edges and batch_size graphs.
  kBudget,
};
inline constexpr EnumNames<BatchingKind, 3> kBatchingNames{
    {{{BatchingKind::kRandom, "random"}, {BatchingKind::kBalanced, "balanced"}, {BatchingKind::kBudget, "budget"}}}};

inline constexpr int64_t kMaxBudget = int64_t{1} << 40;
// The largest batch_size. Under kBudget, this number is so large that max_nodes or max_edges nearly always ends a
// batch first.
inline constexpr int64_t kMaxBatchSize = 65'536;

struct BatchingOptions {
  BatchingKind kind = BatchingKind::kRandom;
  // For kBudget: the most nodes and the most directed edges in a batch, before padding, 1..kMaxBudget. 0: no bound.
  // At least one of the two must be set.
  int64_t max_nodes = 0, max_edges = 0;
  bool operator==(const BatchingOptions&) const = default;
};

template <class F>
void VisitFields(Options<BatchingOptions>, F&& f) {
  using B = BatchingOptions;
  f({.name = "kind",
     .flag = "--batching",
     .help = "Which graphs meet in a training batch; balanced: of nearly equal size; budget: within --max-nodes and "
             "--max-edges, with --fan-out each sampled block ({})"},
    &B::kind, kBatchingNames);
  f({.name = "max_nodes", .flag = "--max-nodes", .help = "With --batching budget: most nodes of a batch"},
    &B::max_nodes);
  f({.name = "max_edges", .flag = "--max-edges", .help = "With --batching budget: most directed edges of a batch"},
    &B::max_edges);
}

// The fan-out of a hop is kAllNeighbors or 1..kMaxFanOut. A sample has 1..kMaxHops hops.
inline constexpr int64_t kAllNeighbors = -1;
inline constexpr int64_t kMaxFanOut = 65'536;
inline constexpr int64_t kMaxHops = 16;

constexpr bool IsFanOut(int64_t fan_out) { return fan_out == kAllNeighbors || (fan_out >= 1 && fan_out <= kMaxFanOut); }

enum class SamplerKind {
  kNeighbor,  // each node draws its neighbours independently
  // LABOR-0 of Balin and Catalyurek 2023, "Layer-Neighbor Sampling". The nodes of a hop share one random number for
  // each candidate neighbour, so that they tend to draw the same neighbours. Equals DGL's LaborSampler without
  // importance_sampling.
  kLabor,
};
inline constexpr EnumNames<SamplerKind, 2> kSamplerKindNames{
    {{{SamplerKind::kNeighbor, "neighbor"}, {SamplerKind::kLabor, "labor"}}}};

enum class TemporalSampling {
  kNone,     // timestamps are not read
  kUniform,  // draws uniformly from the edges before the seed's time
  kLast,     // takes the latest of the edges before the seed's time
};
inline constexpr EnumNames<TemporalSampling, 3> kTemporalSamplingNames{
    {{{TemporalSampling::kNone, "none"}, {TemporalSampling::kUniform, "uniform"}, {TemporalSampling::kLast, "last"}}}};

// An option of a sample that contradicts another one. `field` is named as in NeighborSamplingOptions.
struct DrawConflict {
  std::string field, description;
};

// Returns the first conflict, or nullopt. `options` has the members replace, weighted, disjoint, temporal and sampler
// of NeighborSamplingOptions.
template <class Options>
std::optional<DrawConflict> FindDrawConflict(const Options& options) {
  const auto conflict = [](const char* field, const char* description) {
    return DrawConflict{.field = field, .description = description};
  };
  const bool temporal = options.temporal != TemporalSampling::kNone;
  if (temporal && options.weighted) {
    return conflict("weighted",
                    "is given with temporal, which draws evenly or takes the latest; accepted: one of them");
  }
  if (options.temporal == TemporalSampling::kLast && options.replace) {
    return conflict("replace", "is given with temporal last, which draws nothing; accepted: with temporal uniform");
  }
  if (options.sampler != SamplerKind::kLabor) return std::nullopt;
  constexpr const char* kOnlyNeighbor = "is given with sampler labor; accepted: with sampler neighbor";
  if (temporal) return conflict("temporal", kOnlyNeighbor);
  if (options.disjoint) return conflict("disjoint", kOnlyNeighbor);
  if (options.replace) return conflict("replace", kOnlyNeighbor);
  if (options.weighted) return conflict("weighted", kOnlyNeighbor);
  return std::nullopt;
}

// The probability with which a node is drawn as the target of a negative. kUniform: equal for all nodes. kDegree: in
// proportion to in-degree, so that popular targets serve as negatives more often.
enum class NegativeSampling { kUniform, kDegree };
inline constexpr EnumNames<NegativeSampling, 2> kNegativeSamplingNames{
    {{{NegativeSampling::kUniform, "uniform"}, {NegativeSampling::kDegree, "degree"}}}};

inline constexpr int64_t kMaxWalkLength = 1'000'000;
// The number of nodes from which a sample starts if the caller names no nodes.
inline constexpr int64_t kDefaultStarts = 5;

struct WalkOptions {
  int64_t length = 10;  // nodes in a walk, including its seed, 1..kMaxWalkLength
  // Node2Vec's return and in-out parameters (Grover and Leskovec 2016), > 0. A candidate has weight 1/p if it is the
  // previous node, 1 if it is a neighbour of the previous node, and 1/q otherwise. If both are 1, walks are uniform.
  // Candidates are drawn by rejection sampling, which needs no alias tables.
  double p = 1, q = 1;
  uint64_t seed = 0;
};

template <class F>
void VisitFields(Options<WalkOptions>, F&& f) {
  using W = WalkOptions;
  f({.name = "length",
     .accepts = Between(1, kMaxWalkLength),
     .flag = "--walk",
     .help = "Random walks of so many nodes instead",
     .value = "LENGTH"},
    &W::length);
  f({.name = "p", .accepts = kPositive, .flag = "--p", .help = "Walks: below 1 they return more ({})"}, &W::p);
  f({.name = "q", .accepts = kPositive, .flag = "--q", .help = "Walks: below 1 they go farther ({})"}, &W::q);
}

struct CrossValidation {
  int64_t folds = 0;  // 3..1000; 0: use the set's own splits
  int64_t fold = 0;   // 0..folds-1: the fold that is the test split
  uint64_t seed = 0;  // chooses which graphs share a fold
  bool operator==(const CrossValidation&) const = default;
};

template <class F>
void VisitFields(Options<CrossValidation>, F&& f) {
  f({.name = "folds",
     .flag = "--folds",
     .help = "Sets of graphs: divide them anew into so many folds, 3..1000, stratified by class; 0: the dataset's "
             "splits ({})"},
    &CrossValidation::folds);
  f({.name = "fold",
     .flag = "--fold",
     .help = "With --folds: the one that tests; the next one validates, the others train ({})"},
    &CrossValidation::fold);
  f({.name = "seed", .flag = "--fold-seed", .help = "With --folds: which graphs meet in a fold ({})"},
    &CrossValidation::seed);
}

struct LinkSplitOptions {
  // The fractions of the links in the validation and the test split, each >= 0, together < 1. The remaining links
  // train.
  double valid_part = 0.05, test_part = 0.1;
  uint64_t seed = 0;
  bool operator==(const LinkSplitOptions&) const = default;
};

template <class F>
void VisitFields(Options<LinkSplitOptions>, F&& f) {
  using S = LinkSplitOptions;
  f({.name = "valid_part",
     .accepts = kPart,
     .needs = {Need::kDrawnLinks},
     .told_where_needed = true,
     .flag = "--link-valid",
     .help = "Links: part that validates, with --temporal that before the test's ({})"},
    &S::valid_part);
  f({.name = "test_part",
     .accepts = kPart,
     .needs = {Need::kDrawnLinks},
     .told_where_needed = true,
     .flag = "--link-test",
     .help = "Links: part that tests, with --temporal the latest ({})"},
    &S::test_part);
  f({.name = "split_seed",
     .stored = "seed",
     .flag = "--link-seed",
     .help = "Links: which of them validate and test, and the negatives of evaluation ({})"},
    &S::seed);
}

}  // namespace permafrost::spec
