// Programs whose layers run as operators of nn, on the CPU. WithLinearForms rewrites products with matrices, and
// recurrent cells, as aten::linear. Later rewritings can then move these maps before a gather, or run them by operators
// of nn; other devices have kernels for whole cells. WithRowLayers makes linear maps and batch norms
// permafrost::row_linear and permafrost::row_norm, each with the ReLU behind it.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "program/program.h"

namespace permafrost::program {

// Rewrites matmul, mm and addmm by a matrix of known sizes, recurrent cells, and recurrent layers without dropout over
// sequences of a known length. addmm must have beta and alpha 1, and a bias as wide as the result. A layer operator may
// have 64 cells (layers * directions * steps), and a program 256; the others stay. Tensors must have one known type,
// float32 or float64. The rewritten program computes the same up to rounding. Returns nothing if nothing was rewritten.
std::optional<Program> WithLinearForms(const Program& program);

struct RowLayersOptions {
  bool norms = true;  // batch norms in training too; false: only linear maps
};

struct RowLayers {
  Program program;
  int64_t linears = 0, norms = 0;  // how many were rewritten
};

// Returns nothing if the program has neither. Results equal the program's up to rounding. A map stays
// unless x, weight and bias share one known type, float32 or float64. A norm stays in evaluation, without weight, bias
// or running statistics, or if x is not [N, D].
std::optional<RowLayers> WithRowLayers(const Program& program, const RowLayersOptions& options);

// Returns whether a permafrost::row_linear of the program has float32 weights.
bool HasFloat32Linears(const Program& program);

}  // namespace permafrost::program
