// What nodes of a program do to rows, in the words of a region (nn/kernels/edge_region.h).
// Threads: pure functions.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "nn/kernels/edge_region.h"
#include "program/program.h"

namespace permafrost::program {

// A node that works on each row apart, and there value by value, by sums of values that follow each other, or not at
// all: then the result is the operand, perhaps in another shape.
struct RowOperator {
  static constexpr int32_t kPrevious = -2;
  // Steps that follow each other, without levels and widths. `a`, `b` and `c` are places among `operands`, or
  // kPrevious: the step before.
  std::vector<nn::RegionStep> steps;
  std::vector<std::variant<ValueIndex, double>> operands;
};
// Nothing where the node is none, or takes arguments that regions do not know.
std::optional<RowOperator> RowOperatorOf(const Node& node, const Graph& graph);

// A node that gathers rows of a table by an index of one dimension.
struct GatherOperator {
  ValueIndex table = kNoValue, index = kNoValue;
  bool wraps = false;  // a negative index counts from the end
};
std::optional<GatherOperator> GatherOperatorOf(const Node& node, const Graph& graph);

// A node that reduces rows by an index into `zeros`. The caller checks that `zeros` is filled with 0.
struct ReduceOperator {
  nn::RegionOp op = nn::RegionOp::kSum;  // kSum, kMax or kMin
  ValueIndex zeros = kNoValue, index = kNoValue, rows = kNoValue;
};
std::optional<ReduceOperator> ReduceOperatorOf(const Node& node);

// A tensor that is one number everywhere.
struct FillOperator {
  double number = 0;
  const Argument* size = nullptr;  // its sizes
};
std::optional<FillOperator> FillOperatorOf(const Node& node);

}  // namespace permafrost::program
