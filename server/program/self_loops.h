// Programs for graphs without self-loops: edges that begin and end at one node.
// PyG's layers that add self-loops first remove those there are, by a mask. The rows that a mask leaves depend on
// values, so that no step with one can be captured; where there are no self-loops, they follow from sizes.
// Threads: pure functions.
#pragma once

#include <optional>

#include "program/program.h"

namespace permafrost::program {

// Returns a program that computes the same from every `edge_index` without self-loops, to the bit but for the sign of
// zeros in gradients, and gives a gradient to the same tensors; nullopt where nothing is to be rewritten. Reading or
// writing the rows of a mask that tells self-loops from other edges becomes a range of rows: of edge_index itself, of
// its edges after such a mask, and of either with self-loops of all nodes put behind.
std::optional<Program> WithoutSelfLoops(const Program& program);

}  // namespace permafrost::program
