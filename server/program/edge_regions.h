// Programs whose message passing is fused: what a program gathers by the ends of edges, works out for each edge and
// reduces by target becomes one operator, permafrost::edge_region (nn/ops/edge_region.h), which makes no tensor of
// edges in between. Regions are found in the graph, whatever module it comes from. Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/kernels/edge_region.h"
#include "program/program.h"

namespace permafrost::program {

struct FoundRegion {
  nn::EdgeRegion region;
  std::vector<std::string> nodes;    // the names of the nodes that it stands for, in their order
  std::vector<std::string> sources;  // the user's lines that they come from, each once
};
struct FusedProgram {
  Program program;
  std::vector<FoundRegion> regions;  // in the order in which they were found
};

// Returns nothing if the program has no region, or more than 10,000 nodes. Results equal the program's up to rounding.
// A node stays if it draws random numbers, writes to shared memory, or has an unknown type or width. differentiated:
// whether gradients will be asked for.
std::optional<FusedProgram> WithEdgeRegions(const Program& program, bool differentiated);

}  // namespace permafrost::program
