// Programs for graphs without self-loops: edges that begin and end at one node. PyG's layers that add self-loops first
// remove existing ones by a mask. How many rows a mask keeps depends on values, so such a step cannot be captured.
// Without self-loops the number follows from sizes. Threads: pure functions.
#pragma once

#include <optional>

#include "program/program.h"

namespace permafrost::program {

// Returns a program that gives bit-equal results for every `edge_index` without self-loops, except for the sign of
// zeros in gradients. The same tensors get gradients. Returns nullopt if nothing needs rewriting. Where a mask
// separates self-loops from other edges, reads and writes through it become ranges of rows. The edges may be
// edge_index, what such a mask left of it, or either with a self-loop for each node appended.
std::optional<Program> WithoutSelfLoops(const Program& program);

}  // namespace permafrost::program
