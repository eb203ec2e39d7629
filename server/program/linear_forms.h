// Programs whose products with matrices of weights, and recurrent cells, are written as aten::linear, which the other
// rewritings move and run by operators of nn. It is for the CPU: other devices have kernels for whole cells.
// Threads: pure functions.
#pragma once

#include <optional>

#include "program/program.h"

namespace permafrost::program {

// Returns nothing if the program has none. Rewritten are matmul, mm and addmm of rows with a matrix of known sizes, and
// recurrent cells, and layers of up to 64 cells without dropout over sequences of a known length; all with tensors of
// one known type, float32 or float64. Results equal the program's up to rounding.
std::optional<Program> WithLinearForms(const Program& program);

}  // namespace permafrost::program
