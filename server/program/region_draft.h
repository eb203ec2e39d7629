// The steps of a region, from the nodes of a program (edge_regions.h).
// Threads: pure functions.
#pragma once

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "nn/kernels/edge_region.h"
#include "program/program.h"
#include "program/region_roles.h"

namespace permafrost::program {

struct RegionDraft {
  ReductionTarget target;
  std::set<size_t> nodes;     // that the region stands for
  std::set<size_t> copied;    // gathers that it repeats
  std::set<size_t> orphaned;  // that nothing uses beside it
  nn::EdgeRegion region;
  std::vector<ValueIndex> inputs;
  std::vector<std::pair<ValueIndex, Size>> indices;  // an index, and the rows of its tables
  std::vector<ValueIndex> outputs;                   // values of the program
};

// Returns the region of a reduction: all reductions of its depth, the nodes of that depth that lead to them, and those
// that follow. roles: those for its target. Returns nothing if it has no role, or if the region is too large or has a
// mask that crosses its border.
std::optional<RegionDraft> MakeDraft(const Graph& graph, const RegionRoles& roles, size_t reduction);

// Returns a region without edges: the node, whose role is kRows, and those of its depth that connect to it. roles: made
// for `target`, which has no index. Returns nothing if the region exceeds MakeDraft's limits.
std::optional<RegionDraft> MakeRowDraft(const Graph& graph, const RegionRoles& roles, const ReductionTarget& target,
                                        size_t node);

}  // namespace permafrost::program
