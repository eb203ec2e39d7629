// An edge region: a list of steps that compute values for each edge, reduce them by target, and may compute further
// from the reduced values. Each step has a level and a width. A shared step holds one row of values, a target step
// one row for each target, and an edge step one row for each edge. Edges are processed target by target, so that a
// step may compute an edge's value from the reduced values of that edge's target.
// Threads: plain values, and functions that are safe anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace permafrost::nn {

enum class RegionOp : uint8_t {
  // Inputs. `input` is the position among the region's inputs.
  kShared,    // the input is one row: [width]
  kTarget,    // row t of the input [targets, width]
  kEdge,      // row e of the input [edges, width]
  kGather,    // the row of the input [rows, width] that the index at position `index` has for edge e
  kConstant,  // `x`, a shared step of width 1
  // Changes of level or width. kSum, kMax and kMin reduce an edge step to a target step.
  kExpand,  // target to edge: the row of the edge's target
  kSum,
  kMax,     // 0 for a target without edges, as scatter_reduce_ with include_self=false on zeros; NaN passes through
  kMin,     // same as kMax
  kCount,   // the number of edges of each target; a target step of width 1
  kRowSum,  // sums each `group` adjacent values of a row; its width is the width of `a` / `group`
  kDetach,  // the operand unchanged; no gradient passes
  // Elementwise functions of `a`.
  kNeg,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSigmoid,
  kTanh,
  kRelu,
  kLeakyRelu,  // x is the slope
  kElu,        // x is alpha; scale and input scale are 1
  kSilu,
  kSoftplus,  // beta 1, threshold 20
  kClampMin,  // x is the limit
  kClampMax,  // x is the limit
  kPower,     // a to the power of x
  kScale,     // a * x + y
  // Elementwise functions of `a` and `b`.
  kAdd,  // a + x * b
  kSub,  // a - x * b
  kMul,
  kDiv,
  kMaximum,  // NaN passes through; equal values share the gradient
  kMinimum,
  // Comparisons of `a` with the number x. They yield a mask of 1 and 0, and pass no gradient.
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  // a where the mask c is 1, else b.
  kWhere,
};

struct RegionOpTraits {
  RegionOp op = RegionOp::kShared;
  std::string_view name;
  int operands = 0;  // 1: a; 2: a and b; 3: a, b and c
  // true: the step is elementwise; its operands may be shared steps, and narrower than the step.
  bool by_value = false;
};
inline constexpr int kNumRegionOps = 43;
// Both tables are in the order of the enum.
extern const std::array<RegionOpTraits, kNumRegionOps> kRegionOps;
extern const EnumNames<RegionOp, kNumRegionOps> kRegionOpNames;
inline const RegionOpTraits& TraitsOf(RegionOp op) { return kRegionOps[static_cast<size_t>(op)]; }

enum class RegionLevel : uint8_t { kShared, kTarget, kEdge };
extern const EnumNames<RegionLevel, 3> kRegionLevelNames;

struct RegionStep {
  RegionOp op = RegionOp::kConstant;
  // Positions of earlier steps; -1: none. An operand of an elementwise step is a shared step, or has the step's own
  // level. The operand's width d is the step's width or a divisor of it. Each value of the operand serves width / d
  // adjacent columns of the step.
  int32_t a = -1, b = -1, c = -1;
  int32_t input = -1, index = -1;  // positions among inputs and indices
  int32_t width = 1, group = 1;
  double x = 0, y = 0;
  RegionLevel level = RegionLevel::kShared;
  std::array<int32_t, 3> operands() const { return {a, b, c}; }
  bool operator==(const RegionStep&) const = default;
};

// Limits of DecodeRegion. The number of outputs has the same limit as the number of steps.
inline constexpr int32_t kMaxRegionSteps = 4096, kMaxRegionWidth = 1 << 16;

// The gradient of a table of at most this many values is summed chunk by chunk, without grouping the edges by index.
// For a larger table, one gradient row is first written for each edge.
inline constexpr int64_t kSmallTableValues = 4096;

struct EdgeRegion {
  std::vector<RegionStep> steps;
  std::vector<int32_t> outputs;  // positions of target steps and edge steps
  int32_t num_inputs = 0, num_indices = 0;
  bool operator==(const EdgeRegion&) const = default;
};

// A region as the two lists that the operator takes. DecodeRegion checks all that the kernels rely on: kinds,
// positions, levels and widths. All steps that read one input must have equal kinds, indices and widths. Errors:
// InvalidArgument that names the step.
struct EncodedRegion {
  std::vector<int64_t> code;
  std::vector<double> numbers;
};
EncodedRegion Encode(const EdgeRegion& region);
absl::StatusOr<EdgeRegion> DecodeRegion(std::span<const int64_t> code, std::span<const double> numbers);

// Returns the input that the first kTarget step reads; -1 if there is no kTarget step.
int32_t FirstTargetInput(const EdgeRegion& region);
// Returns true if no step is an edge step, no step counts edges, and no step reduces them.
bool HasNoEdges(const EdgeRegion& region);

// Returns one line for each step, for people and tests: "3: edge[64] = add(1, 2)".
std::string ToString(const EdgeRegion& region);

}  // namespace permafrost::nn
