// Removes what a rewriting of a program left behind. Threads: pure functions.
#pragma once

#include <vector>

#include "program/program.h"

namespace permafrost::program {

// Removes nodes of `rewritten` whose outputs nothing uses, if something used them in `original` or if the rewriting
// added them. Only operators of a fixed list are removed: they do nothing but compute their result.
void RemoveOrphans(const Program& original, Program& rewritten);
// Returns the program with these nodes in place of its own, without orphans. Its values include those of the nodes.
Program WithNodes(const Program& program, std::vector<Node> nodes);

}  // namespace permafrost::program
