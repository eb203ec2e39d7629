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

// Returns nothing if the program has neither. Results equal the program's up to rounding. A map stays as it is if its
// type is unknown, and a norm if it has no weight, no running statistics, or an input of more dimensions than two.
std::optional<RowLayers> WithRowLayers(const Program& program, const RowLayersOptions& options);

}  // namespace permafrost::program
