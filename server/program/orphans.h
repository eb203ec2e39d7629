// Removes what a rewriting of a program left behind. Threads: pure functions.
#pragma once

#include "program/program.h"

namespace permafrost::program {

// Removes nodes of `rewritten` whose outputs nothing uses, if something used them in `original` or if the rewriting
// added them. Nodes that write in place, draw numbers, contain graphs or keep statistics stay.
void RemoveOrphans(const Program& original, Program& rewritten);

}  // namespace permafrost::program
