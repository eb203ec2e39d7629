// Rewrites products with matrices, and recurrent cells, as aten::linear. Later rewritings can then move these maps
// before a gather, or run them by operators of nn. It is for the CPU: other devices have kernels for whole cells.
// Threads: pure functions.
#pragma once

#include <optional>

#include "program/program.h"

namespace permafrost::program {

// Rewrites matmul, mm and addmm by a matrix of known sizes, recurrent cells, and recurrent layers without dropout over
// sequences of a known length. addmm must have beta and alpha 1, and a bias as wide as the result. A layer operator may
// have 64 cells (layers * directions * steps), and a program 256; the others stay. Tensors must have one known type,
// float32 or float64. The rewritten program computes the same up to rounding. Returns nothing if nothing was rewritten.
std::optional<Program> WithLinearForms(const Program& program);

}  // namespace permafrost::program
