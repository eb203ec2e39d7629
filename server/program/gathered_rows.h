// Finds tensors of a program whose rows were gathered from tables by an index, such as the features at the ends of
// edges. Torch-free.
// Threads: plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "program/aliases.h"
#include "program/program.h"

namespace permafrost::program {

// The most rows of a small table. Products with so few rows cost almost nothing compared with products over the rows
// of a batch.
inline constexpr int64_t kSmallTable = 1024;

// A gather: row i of its result is row index[i] of a table of two dimensions.
struct Gather {
  enum class By { kEmbedding, kIndexSelect, kIndex };
  ValueIndex table = kNoValue, index = kNoValue;
  By by = By::kIndexSelect;
  bool small = false;  // true: at most kSmallTable table rows; false: one row per node, and one index entry per edge
  auto operator<=>(const Gather&) const = default;
};
struct GatherTerm {
  Gather gather;
  double factor = 1;
};
// Adjacent columns of a tensor. They are a weighted sum of gathers, or the columns of the tensor `plain`.
struct Columns {
  std::vector<GatherTerm> sum;  // empty: the columns are those of `plain`
  // A tensor whose dimensions between the first and the last have size 1.
  ValueIndex plain = kNoValue;
  int64_t width = 0;
};
// All columns of a tensor, from left to right. The tensor's dimensions between the first and the last have size 1.
using Rows = std::vector<Columns>;

// Returns the number of columns of a tensor of rows. Returns nullopt unless `type` is a tensor of floats with a known
// number of columns.
std::optional<int64_t> WidthOfRows(const TensorType& type);

// Facts about the values of a graph, learned node by node. If an operator may write to a value's memory, the value
// has no facts.
class RowFacts {
 public:
  // `graph` must outlive the facts. Values may be added to the graph if no operator writes to them.
  RowFacts(const Graph& graph, BatchSymbols symbols);

  bool IsWritten(ValueIndex value) const {
    return value == kNoValue || (value < static_cast<ValueIndex>(known_values_) && memory_.IsWritten(value));
  }
  const TensorType* TypeOf(ValueIndex value) const;
  // Learns facts about the node's result from its arguments.
  void Follow(const Node& node);
  void Learn(ValueIndex value, Rows rows);

  // Returns the value's columns; nullopt if the value may not be a tensor of rows.
  std::optional<Rows> RowsOf(ValueIndex value) const;
  // Returns the tensors that the value concatenates along its rows, in order. Returns an empty list if they are not
  // known.
  std::vector<ValueIndex> PartsOf(ValueIndex value) const;

 private:
  bool IsOfEdges(const Size& size) const;
  const Rows* Gathered(ValueIndex value) const;
  ValueIndex Flat(ValueIndex value) const;
  void FollowCat(const Node& node, ValueIndex result);
  void FollowSum(const Node& node, ValueIndex result, double sign);
  void FollowScaled(const Node& node, const std::string& op, ValueIndex result);
  void FollowShape(ValueIndex self, ValueIndex result, bool keeps_sizes);
  void Add(ValueIndex table, ValueIndex index, Gather::By by, ValueIndex result);

  const Graph& graph_;
  const BatchSymbols symbols_;
  const SharedMemory memory_;
  const size_t known_values_;
  std::map<ValueIndex, Rows> rows_;
  std::map<ValueIndex, ValueIndex> flat_;  // by value: an equal tensor of two dimensions, up to sizes of 1
  std::map<ValueIndex, std::vector<ValueIndex>> parts_;
};

}  // namespace permafrost::program
