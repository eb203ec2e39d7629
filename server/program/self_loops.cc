#include "program/rewritings.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "program/aliases.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

constexpr int64_t kEnd = INT64_MAX;

// A fact about a value.
struct Fact {
  enum class Kind {
    kEdges,     // [2, edges]
    kEnds,      // [edges], a row of kEdges
    kMask,      // [edges], bool: true for the self-loops, or true for all other edges
    kNumbers,   // [n] or [1, n]
    kAllLoops,  // [2, n], two equal rows
  };
  Kind kind = Kind::kEdges;
  // Values of one origin hold the same edges in the same order. The first edges are not self-loops; their number is
  // the number of columns of value `others`. If `loops` is true, self-loops follow them. Otherwise there are no more
  // edges.
  ValueIndex origin = kNoValue, others = kNoValue;
  bool loops = false;
  int64_t row = 0;        // for kEnds: 0 or 1, the row of the kEdges
  bool of_loops = false;  // for kMask: true if the mask selects self-loops, false if it selects the rest
};

// Returns true if the node's `dim` is dimension `wanted` of a tensor of two dimensions.
bool IsDimension(const Node& node, int64_t wanted) {
  const auto dim = NumberOf(node, "dim", 0);
  return dim == wanted || dim == wanted - 2;
}
bool AreInts(const Node& node, std::string_view name, int64_t first, int64_t second) {
  const Argument* argument = ArgumentOf(node, name);
  const auto* ints = argument == nullptr ? nullptr : std::get_if<Ints>(argument);
  if (ints == nullptr || ints->values.size() != 2) return false;
  const auto is = [&](size_t i, int64_t wanted) {
    const auto* number = std::get_if<int64_t>(&ints->values[i]);
    return number != nullptr && *number == wanted;
  };
  return is(0, first) && is(1, second);
}

class Rewriter {
 public:
  explicit Rewriter(const Program& program) : program_(program), memory_(program.graph) {
    for (const Input& input : program.inputs) {
      if (input.name == "edge_index" && input.kind == ValueKind::kTensor && input.type.sizes.size() == 2) {
        Learn(input.value, {.kind = Fact::Kind::kEdges, .origin = input.value, .others = input.value});
      }
    }
  }

  std::optional<Program> Run() {
    if (facts_.empty()) return std::nullopt;
    nodes_.reserve(program_.graph.nodes.size());
    for (const Node& old : program_.graph.nodes) {
      Node node = old;
      for (NamedArgument& input : node.inputs) Rename(input.value);
      const std::string op = OperatorOf(node);
      if ((op == "aten::index" && RewriteRead(node)) ||
          ((op == "aten::index_put_" || op == "aten::index_put") && RewriteWrite(node, op))) {
        rewritten_ = true;
        continue;
      }
      Follow(node, op);
      nodes_.push_back(std::move(node));
    }
    if (!rewritten_) return std::nullopt;
    program_.graph.nodes = std::move(nodes_);
    for (std::vector<ValueIndex>* outputs : {&program_.graph.outputs, &program_.outputs})
      for (ValueIndex& output : *outputs) output = Renamed(output);
    for (BufferUpdate& update : program_.updates) update.value = Renamed(update.value);
    return std::move(program_);
  }

 private:
  using Kind = Fact::Kind;
  struct RowRange {
    int64_t dim = 0;
    // The range begins at row number `number of edges of begin_of`, or at row 0 if begin_of is kNoValue. It ends
    // before row number `number of edges of end_of`, or after the last row if end_of is kNoValue.
    ValueIndex begin_of = kNoValue, end_of = kNoValue;
    bool none = false;  // the range is empty
    bool all() const { return !none && begin_of == kNoValue && end_of == kNoValue; }
  };

  ValueIndex Renamed(ValueIndex value) const {
    const auto found = renamed_.find(value);
    return found == renamed_.end() ? value : found->second;
  }
  void Rename(Argument& argument) const {
    if (auto* ref = std::get_if<Ref>(&argument)) ref->value = Renamed(ref->value);
    if (auto* refs = std::get_if<Refs>(&argument))
      for (ValueIndex& value : refs->values) value = Renamed(value);
    if (auto* ints = std::get_if<Ints>(&argument))
      for (auto& number : ints->values)
        if (auto* ref = std::get_if<Ref>(&number)) ref->value = Renamed(ref->value);
  }

  // Returns true if an operator may write to the value. Only the rewriting's own nodes write to values that it adds.
  bool IsWritten(ValueIndex value) const {
    return value < static_cast<ValueIndex>(first_new_) && memory_.IsWritten(value);
  }
  void Learn(ValueIndex value, const Fact& fact) {
    if (value != kNoValue && !IsWritten(value)) facts_.insert_or_assign(value, fact);
  }
  const Fact* FactOf(ValueIndex value, Kind kind) const {
    const auto found = facts_.find(value);
    return found == facts_.end() || found->second.kind != kind ? nullptr : &found->second;
  }

  // Learns facts about the node's outputs.
  void Follow(const Node& node, const std::string& op) {
    const ValueIndex result = ResultOf(node), self = ValueOf(node, "self");
    if (op == "aten::select" || op == "aten::unbind") {
      FollowRows(node, op, self);
    } else if (op == "aten::ne" || op == "aten::eq") {
      FollowComparison(result, self, ValueOf(node, "other"), op == "aten::eq");
    } else if (op == "aten::logical_not" || op == "aten::bitwise_not") {
      if (const Fact* mask = FactOf(self, Kind::kMask)) {
        Fact other = *mask;
        other.of_loops = !mask->of_loops;
        Learn(result, other);
      }
    } else if (op == "aten::cat") {
      FollowCat(node, result);
    } else if (op == "aten::arange") {
      Learn(result, {.kind = Kind::kNumbers});
    } else if (IsEqual(node, op)) {
      if (const auto found = facts_.find(self); found != facts_.end()) Learn(result, Fact(found->second));
    } else if (FactOf(self, Kind::kNumbers) != nullptr) {
      FollowNumbers(node, op, result);
    }
  }

  void FollowRows(const Node& node, const std::string& op, ValueIndex self) {
    const Fact* edges = FactOf(self, Kind::kEdges);
    if (edges == nullptr || !IsDimension(node, 0) || node.outputs.size() != 1) return;
    Fact ends = *edges;
    ends.kind = Kind::kEnds;
    const std::vector<ValueIndex>& results = node.outputs[0].values;
    if (op == "aten::unbind") {
      for (size_t row = 0; row < results.size(); ++row) {
        ends.row = static_cast<int64_t>(row);
        Learn(results[row], ends);
      }
      return;
    }
    const auto index = NumberOf(node, "index", kEnd);
    if (!index || *index < -2 || *index > 1) return;
    ends.row = *index < 0 ? *index + 2 : *index;
    Learn(results[0], ends);
  }

  void FollowComparison(ValueIndex result, ValueIndex one, ValueIndex other, bool equal) {
    const Fact *a = FactOf(one, Kind::kEnds), *b = FactOf(other, Kind::kEnds);
    if (a == nullptr || b == nullptr || a->origin != b->origin || a->row == b->row) return;
    Fact mask = *a;
    mask.kind = Kind::kMask;
    mask.of_loops = equal;
    Learn(result, mask);
  }

  // Learns that the node's result holds the edges of its first part, followed by self-loops.
  void FollowCat(const Node& node, ValueIndex result) {
    const std::vector<ValueIndex> parts = ListOf(node, "tensors");
    const Fact* edges = parts.empty() ? nullptr : FactOf(parts[0], Kind::kEdges);
    if (edges == nullptr || !IsDimension(node, 1)) return;
    for (size_t i = 1; i < parts.size(); ++i)
      if (FactOf(parts[i], Kind::kAllLoops) == nullptr) return;
    Learn(result, {.kind = Kind::kEdges, .origin = result, .others = edges->others, .loops = true});
  }

  void FollowNumbers(const Node& node, const std::string& op, ValueIndex result) {
    const bool is_row = ((op == "aten::view" || op == "aten::reshape") && AreInts(node, "size", 1, -1)) ||
                        (op == "aten::unsqueeze" && IsNumber(node, "dim", kEnd, 0));
    const bool is_pair = (op == "aten::repeat" && AreInts(node, "repeats", 2, 1)) ||
                         (op == "aten::expand" && AreInts(node, "size", 2, -1));
    if (is_row) Learn(result, {.kind = Kind::kNumbers});
    if (is_pair) Learn(result, {.kind = Kind::kAllLoops});
  }

  // Returns true if the node's result equals its argument.
  static bool IsEqual(const Node& node, const std::string& op) {
    if (op == "aten::alias" || op == "aten::detach" || op == "aten::contiguous" || op == "aten::clone") return true;
    return op == "aten::slice" && IsNumber(node, "start", 0, 0) && IsNumber(node, "end", kEnd, kEnd) &&
           IsNumber(node, "step", 1, 1);
  }

  // Returns the rows that the node's mask keeps. Returns nullopt unless the mask is the node's only index and
  // separates self-loops from other edges.
  std::optional<RowRange> RangeOf(const Node& node) const {
    const std::vector<ValueIndex> indices = ListOf(node, "indices");
    std::optional<RowRange> range;
    for (size_t dim = 0; dim < indices.size(); ++dim) {
      if (indices[dim] == kNoValue) continue;
      const Fact* mask = FactOf(indices[dim], Kind::kMask);
      if (mask == nullptr || range) return std::nullopt;
      range = RowRange{.dim = static_cast<int64_t>(dim)};
      range->none = mask->of_loops && !mask->loops;
      if (mask->loops) (mask->of_loops ? range->begin_of : range->end_of) = mask->others;
    }
    return range;
  }

  // Rewrites x[mask].
  bool RewriteRead(const Node& node) {
    const ValueIndex self = ValueOf(node, "self"), result = ResultOf(node);
    const auto range = RangeOf(node);
    if (!range || self == kNoValue || result == kNoValue) return false;
    // The node's result is a copy of x's rows. If nothing writes to the copy or to x, a view has the same values.
    const bool copies = IsWritten(self) || IsWritten(result);
    if (range->all() && !copies) {
      // An alias keeps the order in which autograd adds the gradients of x: as with the mask, the gradient from the
      // selected rows comes first.
      if (!facts_.contains(self)) {
        Add(node, "torch.ops.aten.alias.default", {{"self", Ref{self}}}, result);
      } else {
        renamed_[result] = self;  // indices have no gradients
      }
      return true;
    }
    const std::string copy = "torch.ops.aten.clone.default";
    if (range->all()) {
      Add(node, copy, {{"self", Ref{self}}}, result);
    } else if (copies) {
      Add(node, copy, {{"self", Ref{AddSlice(node, self, *range)}}}, result);
    } else {
      AddSlice(node, self, *range, result);
    }
    const Fact* edges = FactOf(self, Kind::kEdges);
    const bool of_edges = edges != nullptr && range->dim == 1 && range->begin_of == kNoValue && !range->none &&
                          edges->origin == OriginOfMask(node);
    if (of_edges) Learn(result, {.kind = Kind::kEdges, .origin = result, .others = result});
    return true;
  }
  ValueIndex OriginOfMask(const Node& node) const {
    return FactOf(ListOf(node, "indices").back(), Kind::kMask)->origin;
  }

  // Rewrites x[mask] = values.
  bool RewriteWrite(const Node& node, const std::string& op) {
    const ValueIndex values = ValueOf(node, "values"), result = ResultOf(node);
    ValueIndex self = ValueOf(node, "self");
    const auto range = RangeOf(node);
    const Argument* accumulate = ArgumentOf(node, "accumulate");
    const bool adds =
        accumulate != nullptr && (!std::holds_alternative<bool>(*accumulate) || std::get<bool>(*accumulate));
    if (!range || adds || self == kNoValue || values == kNoValue || result == kNoValue) return false;
    if (op == "aten::index_put") {
      Add(node, "torch.ops.aten.clone.default", {{"self", Ref{self}}}, result);
      self = result;
    } else {
      renamed_[result] = self;
    }
    const ValueIndex rows = range->all() ? self : AddSlice(node, self, *range);
    Add(node, "torch.ops.aten.copy_.default", {{"self", Ref{rows}}, {"src", Ref{values}}},
        NewValue(node, ValueKind::kTensor));
    return true;
  }

  ValueIndex NewValue(const Node& node, ValueKind kind) {
    std::vector<Graph::Value>& values = program_.graph.values;
    values.push_back({absl::StrCat(node.name, "_rows_", values.size()), kind});
    return static_cast<ValueIndex>(values.size()) - 1;
  }

  // Adds a node that replaces `node`.
  void Add(const Node& node, const std::string& target, std::vector<NamedArgument> inputs, ValueIndex result) {
    Node& added = nodes_.emplace_back();
    added.name = program_.graph.values[result].name;
    added.target = target;
    added.inputs = std::move(inputs);
    added.outputs.push_back({.values = {result}, .is_list = false});
    added.source = node.source;
  }

  ValueIndex AddSlice(const Node& node, ValueIndex self, const RowRange& range, ValueIndex result = kNoValue) {
    if (result == kNoValue) result = NewValue(node, ValueKind::kTensor);
    const auto bound = [&](ValueIndex edges, int64_t number) {
      return edges == kNoValue ? Argument(number) : Argument(Ref{ColumnsOf(node, edges)});
    };
    const Argument begin = bound(range.begin_of, 0), end = bound(range.end_of, range.none ? 0 : kEnd);
    Add(node, "torch.ops.aten.slice.Tensor",
        {{"self", Ref{self}}, {"dim", range.dim}, {"start", begin}, {"end", end}, {"step", int64_t{1}}}, result);
    return result;
  }

  ValueIndex ColumnsOf(const Node& node, ValueIndex edges) {
    const auto [found, is_new] = columns_.emplace(edges, kNoValue);
    if (is_new) {
      found->second = NewValue(node, ValueKind::kInt);
      Add(node, "torch.ops.aten.sym_size.int", {{"self", Ref{edges}}, {"dim", int64_t{1}}}, found->second);
    }
    return found->second;
  }

  Program program_;  // the copy's nodes are replaced at the end
  const SharedMemory memory_;
  const size_t first_new_ = program_.graph.values.size();
  std::vector<Node> nodes_;
  std::map<ValueIndex, Fact> facts_;
  std::map<ValueIndex, ValueIndex> renamed_, columns_;
  bool rewritten_ = false;
};

}  // namespace

std::optional<Program> WithoutSelfLoops(const Program& program) { return Rewriter(program).Run(); }

}  // namespace permafrost::program
