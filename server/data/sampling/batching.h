// The rules by which the graphs of a set meet in batches. Threads: values.
#pragma once

#include <cstdint>

#include "base/enum_names.h"

namespace permafrost::data {

enum class BatchingKind {
  kRandom,    // shuffled graphs, batch_size after batch_size of them
  kBalanced,  // as many batches, of nearly equal nodes and edges
  kBudget,    // as few batches as hold at most max_nodes, max_edges and batch_size graphs, of nearly equal size
};
inline constexpr EnumNames<BatchingKind, 3> kBatchingNames{
    {{{BatchingKind::kRandom, "random"}, {BatchingKind::kBalanced, "balanced"}, {BatchingKind::kBudget, "budget"}}}};

inline constexpr int64_t kMaxBudget = int64_t{1} << 40;
// The largest batch_size, which as good as never ends a batch before a budget does.
inline constexpr int64_t kMaxBatchSize = 65'536;

struct BatchingOptions {
  BatchingKind kind = BatchingKind::kRandom;
  // The most nodes and directed edges of a batch under kBudget, padding apart, 1..kMaxBudget; 0: no bound. At least one
  // of the two is bounded.
  int64_t max_nodes = 0, max_edges = 0;
  bool operator==(const BatchingOptions&) const = default;
};

}  // namespace permafrost::data
