// Gives each node its role for one reduction target. This is the first half of finding regions (edge_regions.cc). A
// node's role follows from how it computes its rows. row_operators.cc translates this computation into the steps of a
// region (nn/kernels/edge_region.h).
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "nn/kernels/edge_region.h"
#include "program/aliases.h"
#include "program/program.h"

namespace permafrost::program {

// A node that computes each row from the same row of its operands. Within a row, it works elementwise, sums adjacent
// values, or only changes the shape.
struct RowOperator {
  static constexpr int32_t kPrevious = -2;
  // The steps, in order, with levels and widths not yet set. A step's `a`, `b` and `c` are indices in `operands`, or
  // kPrevious, the result of the step before.
  std::vector<nn::RegionStep> steps;
  std::vector<std::variant<ValueIndex, double>> operands;
};
// Returns nullopt if the node is no RowOperator, or has arguments that regions do not support.
std::optional<RowOperator> RowOperatorOf(const Node& node, const Graph& graph);

// A node that gathers rows of a table by an index of one dimension.
struct GatherOperator {
  ValueIndex table = kNoValue, index = kNoValue;
  bool wraps = false;  // true: a negative index counts from the end
};
std::optional<GatherOperator> GatherOperatorOf(const Node& node, const Graph& graph);

// A node that reduces each row of `rows` into the row of `zeros` that `index` names. The caller must check that
// `zeros` is filled with 0.
struct ReduceOperator {
  nn::RegionOp op = nn::RegionOp::kSum;  // kSum, kMax or kMin
  ValueIndex zeros = kNoValue, index = kNoValue, rows = kNoValue;
};
std::optional<ReduceOperator> ReduceOperatorOf(const Node& node);

// A node that makes a tensor with one number everywhere.
struct FillOperator {
  double number = 0;
  const Argument* size = nullptr;  // the tensor's sizes
};
std::optional<FillOperator> FillOperatorOf(const Node& node);

inline constexpr size_t kNoNode = SIZE_MAX;
inline constexpr int64_t kMostRegionWidth = 1 << 14;  // the largest width of a step

// The sizes of a tensor behind its first dimension, which counts rows. All of these sizes are known.
using Dims = std::vector<int64_t>;
// Returns the Dims of a table.
Dims DimsBehindRows(const TensorType& type);
// Returns the product of the sizes, or kMostRegionWidth + 1 if it is larger than kMostRegionWidth.
int64_t WidthOf(const Dims& dims);

// The target of a reduction from edges to rows: the index that gives each edge its row, and the numbers of edges and
// of rows. Without an index there are no edges. Then every RowOperator with `targets` rows has a role.
struct ReductionTarget {
  ValueIndex index = kNoValue;
  Size edges, targets;
  DType dtype = DType::kFloat32;
  bool operator==(const ReductionTarget&) const = default;
};

// The shape of a value relative to a target: the level of its rows, and its other sizes.
struct RowShape {
  nn::RegionLevel level = nn::RegionLevel::kShared;
  Dims dims;
};

// The role of a node for a target.
struct RegionRole {
  enum class Kind {
    kNone,
    kRows,    // a RowOperator
    kGather,  // gathers rows of a table outside the region
    kExpand,  // gathers reduced rows by the target's index
    kReduce
  };
  Kind kind = Kind::kNone;
  bool reduced = false;  // true: the result has a row per edge, or depends on a reduction
  // True for a RowOperator on the targets' rows that does not depend on a reduction. A region may include the node if
  // nothing else reads its result.
  bool joins = false;
  RowOperator rows;
  GatherOperator gather;
  ReduceOperator reduce;
};

class RegionRoles {
 public:
  // Borrows `graph` and `inputs`. Call FindProducers after the graph's nodes change.
  RegionRoles(const Graph& graph, const std::vector<Input>& inputs);

  // Call it after nodes were removed or added. Added nodes have no role.
  void FindProducers();
  // Call Forget when a different node makes `value` from now on. The new node has no role.
  void Forget(ValueIndex value) { meaning_[value] = {}; }
  // Call it for each value that is added to the graph.
  void AddValue() { equal_.push_back(static_cast<ValueIndex>(equal_.size())); }

  // Gives each node its role for the target. Reductions whose results are in `skipped` get no role.
  void GiveRoles(const ReductionTarget& target, const std::set<ValueIndex>& skipped);

  // Returns the target of the reduction that makes `result`; null if no reduction makes it.
  const ReductionTarget* TargetOf(ValueIndex result) const;
  // Returns the node that makes a value; kNoNode if the value is an input.
  size_t Producer(ValueIndex value) const { return producer_[value]; }
  // Returns the first index that equals this one.
  ValueIndex Equal(ValueIndex index) const { return equal_[index]; }
  const RegionRole& Role(size_t node) const { return roles_[node]; }
  size_t num_nodes() const { return roles_.size(); }
  // Returns a value's depth. Nodes of one region have the same odd depth. Nodes between two regions have an even
  // depth between the depths of the two regions. Hence a region never depends on its own outputs.
  int64_t Depth(ValueIndex value) const { return depth_[value]; }

  bool IsIndex(ValueIndex value) const;  // one dimension, int64
  std::optional<RowShape> ShapeOf(ValueIndex value, const ReductionTarget& target) const;

 private:
  // The operation of a node, which does not depend on a target.
  struct Meaning {
    std::optional<ReductionTarget> target;  // set if the node is a reduction
    std::optional<ReduceOperator> reduce;
    std::optional<GatherOperator> gather;
    std::optional<RowOperator> rows;
  };
  using Kind = RegionRole::Kind;

  const std::optional<TensorType>& TypeOf(ValueIndex value) const { return graph_.values[value].type; }
  const Meaning& MeaningOf(ValueIndex result) const;
  bool IsWritten(ValueIndex value) const;
  void FindEqualIndices();
  ValueIndex BaseOf(ValueIndex value) const;
  std::optional<ReductionTarget> FindTarget(const Node& node) const;
  int64_t DepthOf(const Node& node, const RegionRole& role) const;
  bool HasRole(ValueIndex value) const;
  bool IsReduced(ValueIndex value) const;
  bool IsEndOfEdges(ValueIndex index) const;
  RegionRole RoleOf(const Node& node, const ReductionTarget& target, const std::set<ValueIndex>& skipped) const;
  RegionRole RoleOfGather(const GatherOperator& gather, const RowShape& rows, const ReductionTarget& target) const;
  RegionRole RoleOfRows(const RowOperator& op, const RowShape& rows, const ReductionTarget& target) const;

  const Graph& graph_;
  const std::vector<Input>& inputs_;
  const SharedMemory memory_;
  const size_t known_values_;     // the number of values at construction; nothing writes to values added later
  std::vector<Meaning> meaning_;  // by value: the meaning of the node that makes it
  std::vector<size_t> producer_;
  std::vector<ValueIndex> equal_;
  std::vector<RegionRole> roles_;  // by node
  std::vector<int64_t> depth_;     // by value
};

}  // namespace permafrost::program
