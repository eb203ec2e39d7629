#include "program/category_products.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/gathered_rows.h"
#include "program/node_access.h"
#include "program/rewriting.h"

namespace permafrost::program {
namespace {

Ints Sizes(std::initializer_list<int64_t> numbers) {
  Ints ints;
  for (const int64_t number : numbers) ints.values.emplace_back(number);
  return ints;
}

class CategoryRewriter {
 public:
  explicit CategoryRewriter(const Program& program) : program_(program), facts_(program_.graph, program.symbols) {
    for (const Input& input : program.inputs) of_inputs_.insert(input.value);
  }

  std::optional<Program> Run() {
    bool rewritten = false;
    for (const Node& node : program_.graph.nodes) {
      const std::string op = OperatorOf(node);
      if ((op == "aten::matmul" && Rewrite(node, ValueOf(node, "self"), ValueOf(node, "other"))) ||
          (op == "aten::bmm" && Rewrite(node, ValueOf(node, "self"), ValueOf(node, "mat2")))) {
        rewritten = true;
        continue;
      }
      if (op == "aten::view" || op == "aten::reshape") FollowView(node);
      FollowInput(node, op);
      facts_.Follow(node);
      out_.nodes.push_back(node);
    }
    return rewritten ? std::optional(WithNodes(program_, std::move(out_.nodes))) : std::nullopt;
  }

 private:
  // Matrices of `inputs` rows and `outputs` columns, each a row of the gather's table.
  struct Matrices {
    Gather gather;
    int64_t count = 0, inputs = 0, outputs = 0;
  };

  // The gather whose rows the value has, if there is but one.
  std::optional<Gather> GatherOf(ValueIndex value) const {
    const auto rows = facts_.RowsOf(value);
    if (!rows || rows->size() != 1 || (*rows)[0].sum.size() != 1 || (*rows)[0].sum[0].factor != 1) return std::nullopt;
    // An index that may be negative is no place in another table: those that a step passes are not, and the gathers
    // that are left out would have refused others.
    const Gather& gather = (*rows)[0].sum[0].gather;
    const bool checked = gather.by != Gather::By::kIndex && of_inputs_.contains(gather.index);
    return checked ? std::optional(gather) : std::nullopt;
  }

  // Learns which values are an input, or a part of one.
  void FollowInput(const Node& node, const std::string& op) {
    constexpr std::string_view kParts[] = {"aten::alias",     "aten::clone",  "aten::contiguous", "aten::flatten",
                                           "aten::reshape",   "aten::select", "aten::slice",      "aten::squeeze",
                                           "aten::unsqueeze", "aten::view"};
    const ValueIndex self = ValueOf(node, "self");
    const bool is_part = of_inputs_.contains(self) && std::ranges::find(kParts, op) != std::end(kParts);
    if (is_part && ResultOf(node) != kNoValue) of_inputs_.insert(ResultOf(node));
  }

  static bool IsKnown(const Size& size) { return size.expression.empty() && size.number > 0; }

  void FollowView(const Node& node) {
    const ValueIndex self = ValueOf(node, "self"), result = ResultOf(node);
    const TensorType *from = facts_.TypeOf(self), *to = facts_.TypeOf(result);
    if (from == nullptr || to == nullptr || from->sizes.size() != 2 || to->sizes.size() != 3) return;
    if (facts_.IsWritten(self) || facts_.IsWritten(result) || from->sizes[0] != to->sizes[0]) return;
    const auto gather = GatherOf(self);
    if (!gather || !gather->small || !IsKnown(to->sizes[1]) || !IsKnown(to->sizes[2])) return;
    const Matrices matrices{.gather = *gather,
                            .count = facts_.TypeOf(gather->table)->sizes[0].number,
                            .inputs = to->sizes[1].number,
                            .outputs = to->sizes[2].number};
    const bool fits = WidthOfRows(*from) == matrices.inputs * matrices.outputs;
    if (fits && matrices.count <= kMaxCategories) matrices_.emplace(result, matrices);
  }

  // rows [E, 1, K] times matrices [E, K, O]
  bool Rewrite(const Node& node, ValueIndex rows, ValueIndex factor) {
    const auto found = matrices_.find(factor);
    const ValueIndex result = ResultOf(node);
    if (found == matrices_.end() || rows == kNoValue || result == kNoValue) return false;
    const Matrices& m = found->second;
    const auto gather = GatherOf(rows);
    const TensorType *of_rows = facts_.TypeOf(rows), *of_result = facts_.TypeOf(result);
    if (!gather || gather->small || of_rows == nullptr || of_result == nullptr || of_rows->sizes.size() != 3 ||
        WidthOfRows(*of_rows) != m.inputs || WidthOfRows(*of_result) != m.outputs || of_result->sizes.size() != 3) {
      return false;
    }
    TensorType type = *of_result;
    const Size edges = type.sizes[0], nodes = facts_.TypeOf(gather->table)->sizes[0], one{.number = 1};
    const Size count{.number = m.count}, inputs{.number = m.inputs}, outputs{.number = m.outputs};
    const auto of = [&](std::vector<Size> sizes) {
      type.sizes = std::move(sizes);
      return type;
    };
    const ValueIndex apart = out_.Add(node, "reshape.default",
                                      {{"self", Ref{m.gather.table}}, {"shape", Sizes({m.count, m.inputs, m.outputs})}},
                                      of({count, inputs, outputs}));
    const ValueIndex turned =
        out_.Add(node, "transpose.int", {{"self", Ref{apart}}, {"dim0", int64_t{1}}, {"dim1", int64_t{2}}},
                 of({count, outputs, inputs}));
    const Size all{.number = m.count * m.outputs};
    const ValueIndex weight = out_.Add(
        node, "reshape.default", {{"self", Ref{turned}}, {"shape", Sizes({all.number, m.inputs})}}, of({all, inputs}));
    const ValueIndex products =
        out_.Add(node, "linear.default", {{"input", Ref{gather->table}}, {"weight", Ref{weight}}}, of({nodes, all}));
    const ValueIndex by_category =
        out_.Add(node, "view.default", {{"self", Ref{products}}, {"size", Sizes({-1, m.count, m.outputs})}},
                 of({nodes, count, outputs}));
    const ValueIndex own =
        out_.Add(node, "index.Tensor", {{"self", Ref{by_category}}, {"indices", Refs{{gather->index, m.gather.index}}}},
                 of({edges, outputs}));
    out_.Add(node, "unsqueeze.default", {{"self", Ref{own}}, {"dim", int64_t{1}}}, of({edges, one, outputs}));
    out_.Finish(node, result);
    return true;
  }

  Program program_;  // nodes of the copy stay as they are
  RowFacts facts_;
  NodeWriter out_{program_.graph.values};
  std::map<ValueIndex, Matrices> matrices_;
  std::set<ValueIndex> of_inputs_;
};

}  // namespace

std::optional<Program> WithCategoryProducts(const Program& program) { return CategoryRewriter(program).Run(); }

}  // namespace permafrost::program
