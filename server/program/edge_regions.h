// Finds two kinds of regions in a program's graph, whatever module it comes from, and makes each one operator
// (nn/ops/edge_region.h). Message passing becomes permafrost::edge_region: what is gathered by the ends of edges,
// worked out for each edge and reduced by target, with no tensor of edges in between. Connected operators that compute
// each row by itself become permafrost::row_region. Threads: pure functions.
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
