// Which of a program's nodes may not run, and which draw random numbers.
// Threads: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "program/program.h"

namespace permafrost::program {

// InvalidArgument that names the first node whose operator no program may use, with its line of the module, and the
// other operators of that kind.
absl::Status CheckOperators(const Program& program);

// Nodes that draw, in their order, those of regions included. They live as long as the program.
std::vector<const Node*> RandomNodes(const Program& program);

}  // namespace permafrost::program
