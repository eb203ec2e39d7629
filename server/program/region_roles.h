// Gives each node its role for one reduction target, the first half of finding regions (edge_regions.cc). A role is
// told by what the node does to rows, in the words of a region (nn/kernels/edge_region.h), which row_operators.cc
// finds. Threads: plain values and pure functions.
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

inline constexpr size_t kNoNode = SIZE_MAX;
inline constexpr int64_t kMostRegionWidth = 1 << 14;  // of a step

// Sizes of a tensor behind its rows. All of them are known.
using Dims = std::vector<int64_t>;
// Returns those of a table.
Dims DimsBehindRows(const TensorType& type);
// Returns their product; more than kMostRegionWidth is that and 1.
int64_t WidthOf(const Dims& dims);

// Rows that edges are reduced to: the index that says where, and how many rows go in and come out. Without an index
// there are no edges, and every node that works on each of `targets` rows by itself has a role.
struct ReductionTarget {
  ValueIndex index = kNoValue;
  Size edges, targets;
  DType dtype = DType::kFloat32;
  bool operator==(const ReductionTarget&) const = default;
};

// What a value is for a target.
struct RowShape {
  nn::RegionLevel level = nn::RegionLevel::kShared;
  Dims dims;
};

// What a node is for a target.
struct RegionRole {
  enum class Kind {
    kNone,
    kRows,    // works on each row apart
    kGather,  // gathers rows of what lies outside of a region
    kExpand,  // gathers, by the target, rows that are reduced
    kReduce
  };
  Kind kind = Kind::kNone;
  bool reduced = false;  // its result has a row for each edge, or rows that follow from a reduction
  // It works on each target's row by itself, before any reduction. A region may include it if nothing else reads its
  // result.
  bool joins = false;
  RowOperator rows;
  GatherOperator gather;
  ReduceOperator reduce;
};

class RegionRoles {
 public:
  // Borrows both. After the graph's nodes change, FindProducers must be called.
  RegionRoles(const Graph& graph, const std::vector<Input>& inputs);

  // Called after nodes were taken out or put in. Those that were put in have no role.
  void FindProducers();
  // Called after another node took over making `value`; the new node has no role.
  void Forget(ValueIndex value) { meaning_[value] = {}; }
  // Called for each value that is added to the graph.
  void AddValue() { equal_.push_back(static_cast<ValueIndex>(equal_.size())); }

  // Gives each node its role for the target. Reductions whose results are among `skipped` have none.
  void GiveRoles(const ReductionTarget& target, const std::set<ValueIndex>& skipped);

  // Returns the target of the reduction that makes `result`; null: no reduction makes it.
  const ReductionTarget* TargetOf(ValueIndex result) const;
  // The node that makes a value; kNoNode: it is an input.
  size_t Producer(ValueIndex value) const { return producer_[value]; }
  // The first index that equals this one.
  ValueIndex Equal(ValueIndex index) const { return equal_[index]; }
  const RegionRole& Role(size_t node) const { return roles_[node]; }
  size_t num_nodes() const { return roles_.size(); }
  // Nodes of one region share an odd depth. Nodes between two regions have an even depth between theirs. A region thus
  // never depends on its own outputs.
  int64_t Depth(ValueIndex value) const { return depth_[value]; }

  bool IsIndex(ValueIndex value) const;  // of one dimension, int64
  std::optional<RowShape> ShapeOf(ValueIndex value, const ReductionTarget& target) const;

 private:
  // What a node does, whatever the target.
  struct Meaning {
    std::optional<ReductionTarget> target;  // of a reduction
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
  const size_t known_values_;     // that there were at first; nothing writes to others
  std::vector<Meaning> meaning_;  // of the node whose result a value is
  std::vector<size_t> producer_;
  std::vector<ValueIndex> equal_;
  std::vector<RegionRole> roles_;  // by node
  std::vector<int64_t> depth_;     // by value
};

}  // namespace permafrost::program
