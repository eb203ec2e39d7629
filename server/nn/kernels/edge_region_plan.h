// How the steps of a region are run over a tile of its rows: which ones, in which registers, and for the gradient which
// values are kept and which steps have an adjoint. A tile is a run of targets with all of their edges; a register holds
// a row for each target, or each edge, of a tile.
// Threads: plain values, and functions that are safe anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "nn/kernels/edge_region.h"

namespace permafrost::nn {

// Registers of a tile. In a tile's memory, those of edges come first; `before` counts the columns of the registers of
// the same level that come before.
struct RegionRegisters {
  struct Register {
    RegionLevel level = RegionLevel::kEdge;
    int32_t width = 1;
    int64_t before = 0;
  };
  int32_t Add(RegionLevel level, int32_t width);
  // Values of a tile.
  int64_t Size(int64_t targets, int64_t edges) const { return targets * target_columns + edges * edge_columns; }
  // Where a register begins.
  int64_t Place(int32_t which, int64_t targets, int64_t edges) const {
    const Register& r = registers[static_cast<size_t>(which)];
    return r.level == RegionLevel::kEdge ? r.before * edges : edge_columns * edges + r.before * targets;
  }
  std::vector<Register> registers;
  int64_t target_columns = 0, edge_columns = 0;
};

// The target steps and edge steps that are computed, in their order, and the register of each step (-1: none).
struct RegionPass {
  std::vector<int32_t> steps;
  std::vector<int32_t> register_of;
};

// Narrower rows of targets and tables are copied for each edge, so that steps run over values that follow each other.
inline constexpr int32_t kLeastViewWidth = 16;

// A region, and what follows from it alone.
struct RegionPlan {
  explicit RegionPlan(EdgeRegion of);

  EdgeRegion region;
  // For each step, the step that holds its values: itself, the first step that reads the same input, or for kDetach
  // that of its operand.
  std::vector<int32_t> root;
  // For each step, the step that holds its adjoint: itself, or the first step that reads the same input.
  std::vector<int32_t> home;
  // For each input, the first step that reads it (-1: none does).
  std::vector<int32_t> reader;
  // Steps of edges that gather or expand rows of which no copy is made: their readers take each row where it lies.
  std::vector<char> is_view;
  // For each input, true if it has a row for each target, and its rows may have gaps between them, as a slice of wider
  // rows does.
  std::vector<char> may_lie_apart;
  // Shared steps that are computed, in their order, and where the values of each shared step begin (-1: elsewhere).
  std::vector<int32_t> shared_steps;
  std::vector<int64_t> shared_place;
  int64_t shared_columns = 0;
  int32_t widest = 1;
  // The forward pass. A register is reused after the last read of its value.
  RegionPass forward;
  RegionRegisters registers;
};

// Plans the gradients of the wanted inputs from those of the given outputs.
struct RegionGradientPlan {
  RegionGradientPlan(const RegionPlan& plan, std::span<const char> wanted_inputs, std::span<const char> given_outputs);

  // For each step that is its own home: whether an adjoint comes to it, and leads on to a wanted input.
  std::vector<char> active;
  // Steps whose values the adjoints need. A value that an adjoint reads stays in its register.
  RegionPass values;
  // The register of each active step's adjoint (-1: none).
  std::vector<int32_t> adjoint_of;
  RegionRegisters registers;  // of both
};

// The values that the gradient for operand k reads: the step's own, and its operands'.
struct ReadByGradient {
  bool own = false;
  std::array<bool, 3> operands{};
};
ReadByGradient ReadsOf(RegionOp op, int k);
// Returns whether a step passes a gradient to operand k.
bool PassesGradient(RegionOp op, int k);
// Returns whether operand k, if it has the step's level and width, receives the step's adjoint unchanged.
bool PassesAdjointUnchanged(const RegionStep& step, int k);

}  // namespace permafrost::nn
