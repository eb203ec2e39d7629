// Programs whose linear maps and batch norms run as operators of nn, each with the ReLU behind it:
// permafrost::row_linear and permafrost::row_norm, for the CPU. Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "program/program.h"

namespace permafrost::program {

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
