// Plans how the steps of a region run over a tile: which steps run, and in which registers. For the gradient it also
// plans which values are kept and which steps have an adjoint. A tile is a range of targets with all of their edges.
// A register holds a row for each target or for each edge of a tile.
// Threads: plain values, and functions that are safe anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "nn/kernels/edge_region.h"

namespace permafrost::nn {

// The registers of a tile. In a tile's memory, edge registers come first. `before` is the number of columns in
// earlier registers of the same level.
struct RegionRegisters {
  struct Register {
    RegionLevel level = RegionLevel::kEdge;
    int32_t width = 1;
    int64_t before = 0;
  };
  int32_t Add(RegionLevel level, int32_t width);
  // Returns the number of values of a tile.
  int64_t Size(int64_t targets, int64_t edges) const { return targets * target_columns + edges * edge_columns; }
  // Returns where a register begins in the tile's memory.
  int64_t Place(int32_t which, int64_t targets, int64_t edges) const {
    const Register& r = registers[static_cast<size_t>(which)];
    return r.level == RegionLevel::kEdge ? r.before * edges : edge_columns * edges + r.before * targets;
  }
  std::vector<Register> registers;
  int64_t target_columns = 0, edge_columns = 0;
};

// The value that a kSum step adds up for each edge without storing it. It has one of three forms: the value v of a
// kAdd or kMul step, relu(v), or the value of step `passed` where v is positive or NaN, and 0 elsewhere.
struct SummedValue {
  int32_t step = -1;  // the kAdd or kMul step; -1: the sum reads stored rows
  bool relu = false;
  int32_t passed = -1;  // the step whose rows are summed; -1: the value itself is summed
};

// The plan of one pass over a tile.
struct RegionPass {
  // The target steps and edge steps to compute, in their order.
  std::vector<int32_t> steps;
  // For each step, its register (-1: none).
  std::vector<int32_t> register_of;
  // For each kSum step, the value that the sum computes for each edge. A step whose value is computed in a sum has no
  // register and is not in `steps`.
  std::vector<SummedValue> summed;
  int64_t summed_columns = 0;  // the total width of all summed values
};

// Rows of targets and of tables are copied for each edge if they have fewer columns than this. Steps then run over
// contiguous values.
inline constexpr int32_t kLeastViewWidth = 16;

// A region, and everything that can be planned from the region alone.
struct RegionPlan {
  explicit RegionPlan(EdgeRegion of);

  EdgeRegion region;
  // For each step, the step that holds its values: itself, or the first step that reads the same input. The root of a
  // kDetach step is the root of its operand.
  std::vector<int32_t> root;
  // For each step, the step that holds its adjoint: itself, or the first step that reads the same input.
  std::vector<int32_t> home;
  // For each input, the first step that reads it (-1: none does).
  std::vector<int32_t> reader;
  // For each step, true if it is an edge step that gathers or expands rows without a copy. Its readers take each row
  // in place.
  std::vector<char> is_view;
  // For each input, true if it has a row for each target, and the kernels accept gaps between these rows. A slice of
  // wider rows has such gaps.
  std::vector<char> may_lie_apart;
  // The shared steps to compute, in their order.
  std::vector<int32_t> shared_steps;
  // For each step, the offset of its values in the memory of the shared steps; -1: the values are not in this memory.
  std::vector<int64_t> shared_place;
  int64_t shared_columns = 0;
  int32_t widest = 1;
  // The forward pass. A register is reused after the last read of its value.
  RegionPass forward;
  RegionRegisters registers;
};

// Plans the gradients of the wanted inputs, from the given gradients of outputs.
struct RegionGradientPlan {
  RegionGradientPlan(const RegionPlan& plan, std::span<const char> wanted_inputs, std::span<const char> given_outputs);

  // For each step s with home[s] == s, true if it receives an adjoint on which a wanted input's gradient depends.
  std::vector<char> active;
  // Computes the values that the adjoints need. If an adjoint reads a value, the register of the value is not reused.
  RegionPass values;
  // For each step, the register of its adjoint (-1: none).
  std::vector<int32_t> adjoint_of;
  RegionRegisters registers;  // for values and adjoints
};

// Tells which values the gradient for operand k reads: the step's own values (`own`), and the values of its operands
// (`operands`).
struct ReadByGradient {
  bool own = false;
  std::array<bool, 3> operands{};
};
ReadByGradient ReadsOf(RegionOp op, int k);
// Returns whether a step passes a gradient to operand k.
bool PassesGradient(RegionOp op, int k);
// Returns true if `step` can read an operand of `width` columns without a copy. It can if `width` is the step's own
// width. A kMul step also can if each value of the operand fills whole vectors of the step's columns.
bool TakesWidth(const RegionStep& step, int32_t width);
// Returns whether operand k receives the step's adjoint unchanged, provided that the operand has the step's level and
// width.
bool PassesAdjointUnchanged(const RegionStep& step, int k);

}  // namespace permafrost::nn
