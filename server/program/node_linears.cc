#include "program/rewritings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "program/gathered_rows.h"
#include "program/node_writer.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

// The product of a table with a weighted sum of column blocks of the weight. `uses` are the gathers from the
// product's rows; their results are added up.
struct TableProduct {
  ValueIndex table = kNoValue;
  int64_t width = 0;
  std::vector<double> factors;   // one per column block; 0: the block does not read the table
  std::vector<GatherTerm> uses;  // the first one has factor 1
};

// Work is counted in multiplications for one output column and one pair of edges, the two directions of a bond. A
// gather with its addition takes as long as this many multiplications.
constexpr int64_t kWorkOfGather = 6;
// There is one node for each pair of edges, since molecules have about half as many atoms as directed bonds.
constexpr int64_t kEdgesOfPair = 2, kNodesOfPair = 1;

std::optional<size_t> FirstOf(const std::vector<double>& factors) {
  const auto found = std::ranges::find_if(factors, [](double factor) { return factor != 0; });
  return found == factors.end() ? std::nullopt : std::optional(static_cast<size_t>(found - factors.begin()));
}

// Returns the number r with one == r * other; nullopt if there is none.
std::optional<double> Ratio(const std::vector<double>& one, const std::vector<double>& other) {
  const auto first = FirstOf(other);
  if (!first || one[*first] == 0) return std::nullopt;
  const double ratio = one[*first] / other[*first];
  for (size_t i = 0; i < one.size(); ++i)
    if (one[i] != ratio * other[i]) return std::nullopt;
  return ratio;
}

struct Gathered {
  Gather gather;
  int64_t width = 0;
  std::vector<double> factors;
};

std::vector<Gathered> GathersOf(const Rows& rows) {
  std::vector<Gathered> gathers;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const GatherTerm& term : rows[i].sum) {
      auto found = std::ranges::find(gathers, term.gather, &Gathered::gather);
      if (found == gathers.end()) {
        gathers.push_back({term.gather, rows[i].width, std::vector<double>(rows.size())});
        found = gathers.end() - 1;
      }
      found->factors[i] += term.factor;
    }
  }
  return gathers;
}

// Returns the table products that replace a linear map of `rows`. Returns nullopt if no column is gathered, if
// gathers cancel, if `rows` does not have `width` columns, or if the products take no less work.
std::optional<std::vector<TableProduct>> FewerProducts(const Rows& rows, int64_t width) {
  std::vector<TableProduct> products;
  int64_t before = 0, after = 0, columns = 0;
  for (const Columns& part : rows) {
    columns += part.width;
    if (!part.sum.empty()) before += kEdgesOfPair * part.width;
  }
  for (Gathered& gathered : GathersOf(rows)) {
    if (!FirstOf(gathered.factors)) return std::nullopt;  // the gathers cancel, as in x - x
    after += kWorkOfGather;
    double ratio = 1;
    const auto product = std::ranges::find_if(products, [&](const TableProduct& other) {
      const auto found = other.table == gathered.gather.table ? Ratio(gathered.factors, other.factors) : std::nullopt;
      if (found) ratio = *found;
      return found.has_value();
    });
    if (product != products.end()) {
      product->uses.push_back({gathered.gather, ratio});
      continue;
    }
    products.push_back({gathered.gather.table, gathered.width, std::move(gathered.factors), {{gathered.gather}}});
    if (!gathered.gather.small) after += kNodesOfPair * gathered.width;
  }
  if (products.empty() || columns != width || after >= before) return std::nullopt;
  return products;
}

// A table may be gathered from another table, and so on. Such chains are followed to this depth.
constexpr int kMaxDepth = 4;

// Elementwise operators: each element of the result depends only on the same element of `self` and on numbers.
constexpr std::string_view kValueByValue[] = {
    "aten::relu", "aten::sigmoid",  "aten::tanh",   "aten::leaky_relu", "aten::elu", "aten::gelu", "aten::silu",
    "aten::abs",  "aten::softplus", "aten::square", "aten::selu",       "aten::add", "aten::sub"};

class LinearRewriter {
 public:
  explicit LinearRewriter(const Program& program) : program_(program), facts_(program_.graph, program.symbols) {
    for (const Node& node : program.graph.nodes)
      for (const ValueIndex value : ValuesOf(node)) ++uses_[value];
  }

  std::optional<Program> Run() {
    out_.nodes.reserve(program_.graph.nodes.size());
    for (const Node& node : program_.graph.nodes) {
      const std::string op = OperatorOf(node);
      if ((op == "aten::linear" && RewriteLinear(node)) || RewriteOnTable(node, op)) {
        rewritten_ = true;
        continue;
      }
      facts_.Follow(node);
      out_.nodes.push_back(node);
    }
    return rewritten_ ? std::optional(WithNodes(program_, std::move(out_.nodes))) : std::nullopt;
  }

 private:
  // A linear map of rows after it was moved before the gathers.
  struct Mapped {
    ValueIndex value = kNoValue;  // has two dimensions
    Rows rows;                    // the columns of `value`; empty if a part is not gathered
  };
  struct Map {
    ValueIndex weight = kNoValue, bias = kNoValue;
    int64_t outputs = 0, inputs = 0;
    DType dtype = DType::kFloat32;
  };

  std::optional<Map> MapOf(const Node& node, const TensorType& result) const {
    const ValueIndex weight = ValueOf(node, "weight"), bias = ValueOf(node, "bias");
    const TensorType* type = facts_.TypeOf(weight);
    if (type == nullptr || type->sizes.size() != 2 || type->dtype != result.dtype || !WidthOfRows(*type) ||
        !type->sizes[0].expression.empty() || facts_.IsWritten(weight) ||
        (bias != kNoValue && facts_.IsWritten(bias))) {
      return std::nullopt;
    }
    return Map{.weight = weight,
               .bias = bias,
               .outputs = type->sizes[0].number,
               .inputs = type->sizes[1].number,
               .dtype = type->dtype};
  }

  bool RewriteLinear(const Node& node) {
    const ValueIndex input = ValueOf(node, "input"), result = ResultOf(node);
    if (facts_.TypeOf(result) == nullptr || !WidthOfRows(*facts_.TypeOf(result))) return false;
    const TensorType type = *facts_.TypeOf(result);
    const auto map = MapOf(node, type);
    if (!map) return false;
    const auto rows = facts_.RowsOf(input);
    const auto products = rows ? FewerProducts(*rows, map->inputs) : std::nullopt;
    if (!products) return type.sizes.size() == 2 && RewriteParts(node, *map, facts_.PartsOf(input), result);
    Mapped mapped = Apply(node, *rows, *products, *map, type.sizes[0], 0);
    Define(node, mapped.value, type.sizes.size(), result);
    facts_.Learn(result, std::move(mapped.rows));
    return true;
  }

  // Rewrites a linear map of tensors that are concatenated along their rows, if one of them is gathered.
  bool RewriteParts(const Node& node, const Map& map, const std::vector<ValueIndex>& parts, ValueIndex result) {
    const auto is_gathered = [&](ValueIndex part) {
      const auto rows = facts_.RowsOf(part);
      return rows && FewerProducts(*rows, map.inputs);
    };
    if (!std::ranges::any_of(parts, is_gathered)) return false;
    Refs mapped;
    for (const ValueIndex part : parts)
      mapped.values.push_back(MapTable(node, part, map, facts_.TypeOf(part)->sizes[0], 0));
    out_.Add(node, "cat.default", {{"tensors", std::move(mapped)}, {"dim", int64_t{0}}}, result);
    out_.nodes.back().name = node.name;
    facts_.Follow(out_.nodes.back());
    return true;
  }

  // If the node is an elementwise operator on rows gathered from a small table, applies the operator to the table.
  // Otherwise returns false and adds nothing. A gather from the new table replaces the node under three conditions:
  // this rewriting made the old table, nothing else uses the rows, and the result has two dimensions. Otherwise the
  // node stays, after the operator on the table.
  bool RewriteOnTable(const Node& node, const std::string& op) {
    const ValueIndex self = ValueOf(node, "self"), result = ResultOf(node);
    if (std::ranges::find(kValueByValue, op) == std::end(kValueByValue) || ValuesOf(node).size() != 1) return false;
    const TensorType* type = facts_.TypeOf(result);
    const auto rows =
        self == kNoValue || facts_.IsWritten(result) || type == nullptr ? std::nullopt : facts_.RowsOf(self);
    if (!rows || rows->size() != 1 || (*rows)[0].sum.size() != 1) return false;
    GatherTerm term = (*rows)[0].sum[0];
    const Size count = type->sizes[0];
    if (!term.gather.small || WidthOfRows(*type) != (*rows)[0].width) return false;
    const bool is_made = term.gather.table >= static_cast<ValueIndex>(first_new_);
    const bool replaces = is_made && uses_[self] == 1 && type->sizes.size() == 2;
    const TensorType of_table = *facts_.TypeOf(term.gather.table);
    if (of_table.dtype != type->dtype) return false;
    ValueIndex table = Scaled(node, term.gather.table, term.factor);
    std::vector<NamedArgument> inputs = node.inputs;
    for (NamedArgument& input : inputs)
      if (input.name == "self") input.value = Ref{table};
    term.gather.table = out_.NewValue(node, of_table);
    term.factor = 1;
    out_.AddTarget(node, node.target, std::move(inputs), term.gather.table);
    facts_.Learn(result, {{.sum = {term}, .plain = kNoValue, .width = (*rows)[0].width}});
    if (!replaces) out_.nodes.push_back(node);
    if (replaces) Define(node, AddGather(node, term.gather, count), 2, result);
    return true;
  }

  // Maps each block of columns and returns the sum of the mapped blocks, a tensor of two dimensions.
  Mapped Apply(const Node& node, const Rows& rows, const std::vector<TableProduct>& products, const Map& map,
               const Size& count, int depth) {
    const std::vector<ValueIndex> weights = Split(node, map, rows);
    const TensorType type{.dtype = map.dtype, .sizes = {count, {.number = map.outputs}}, .requires_grad = true};
    ValueIndex sum = kNoValue, bias = map.bias;
    Rows mapped(1);
    mapped[0].width = map.outputs;
    const auto add = [&](ValueIndex part, double factor) {
      sum = sum == kNoValue ? part : AddScaled(node, sum, part, factor, type);
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].plain == kNoValue) continue;
      add(AddLinear(node, rows[i].plain, weights[i], std::exchange(bias, kNoValue), type), 1);
      mapped.clear();
    }
    for (const TableProduct& product : products) {
      Map own = map;
      own.weight = Combined(node, weights, product.factors);
      own.inputs = product.width;
      own.bias = product.uses.size() == 1 ? std::exchange(bias, kNoValue) : kNoValue;
      const Size table_rows = facts_.TypeOf(product.table)->sizes[0];
      const ValueIndex table = MapTable(node, product.table, own, table_rows, depth + 1);
      for (const GatherTerm& use : product.uses) {
        Gather gather = use.gather;
        gather.table = table;
        add(AddGather(node, gather, count), use.factor);
        if (!mapped.empty()) mapped[0].sum.push_back({gather, use.factor});
      }
    }
    if (bias != kNoValue) {
      add(bias, 1);
      mapped.clear();
    }
    return {sum, std::move(mapped)};
  }

  // Returns the linear map of a table. It is made once for each weight and bias.
  ValueIndex MapTable(const Node& node, ValueIndex table, const Map& map, const Size& count, int depth) {
    const auto key = std::tuple(table, map.weight, map.bias);
    if (const auto found = tables_.find(key); found != tables_.end()) return found->second;
    const auto rows = facts_.RowsOf(table);
    const auto products = rows && depth < kMaxDepth ? FewerProducts(*rows, map.inputs) : std::nullopt;
    ValueIndex mapped = kNoValue;
    if (products) {
      Mapped made = Apply(node, *rows, *products, map, count, depth);
      mapped = made.value;
      facts_.Learn(mapped, std::move(made.rows));
    } else {
      const TensorType type{.dtype = map.dtype, .sizes = {count, {.number = map.outputs}}, .requires_grad = true};
      mapped = AddLinear(node, table, map.weight, map.bias, type);
    }
    tables_.emplace(key, mapped);
    return mapped;
  }

  // Splits the weight's columns into one block for each Columns of `rows`.
  std::vector<ValueIndex> Split(const Node& node, const Map& map, const Rows& rows) {
    if (rows.size() == 1) return {map.weight};
    Ints widths;
    for (const Columns& columns : rows) widths.values.emplace_back(columns.width);
    std::vector<TensorType> types;
    for (const Columns& columns : rows) {
      types.push_back(
          {.dtype = map.dtype, .sizes = {{.number = map.outputs}, {.number = columns.width}}, .requires_grad = true});
    }
    return out_.AddList(node, "torch.ops.aten.split_with_sizes.default",
                        {{"self", Ref{map.weight}}, {"split_sizes", std::move(widths)}, {"dim", int64_t{1}}}, types);
  }

  ValueIndex Combined(const Node& node, const std::vector<ValueIndex>& weights, const std::vector<double>& factors) {
    ValueIndex sum = kNoValue;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (factors[i] == 0) continue;
      const TensorType type = *facts_.TypeOf(weights[i]);
      sum = sum == kNoValue ? Scaled(node, weights[i], factors[i]) : AddScaled(node, sum, weights[i], factors[i], type);
    }
    return sum;
  }

  ValueIndex Scaled(const Node& node, ValueIndex value, double factor) {
    if (factor == 1) return value;
    const TensorType type = *facts_.TypeOf(value);
    return out_.Add(node, "mul.Tensor", {{"self", Ref{value}}, {"other", factor}}, type);
  }
  ValueIndex AddScaled(const Node& node, ValueIndex a, ValueIndex b, double factor, const TensorType& type) {
    std::vector<NamedArgument> inputs = {{"self", Ref{a}}, {"other", Ref{b}}};
    if (factor != 1 && factor != -1) inputs.push_back({"alpha", factor});
    return out_.Add(node, factor == -1 ? "sub.Tensor" : "add.Tensor", std::move(inputs), type);
  }

  // Adds a linear map of `input`, whose dimensions between the first and the last have size 1. The result lacks these
  // dimensions. It has two dimensions, and the element type and width of `type`.
  ValueIndex AddLinear(const Node& node, ValueIndex input, ValueIndex weight, ValueIndex bias, const TensorType& type) {
    TensorType whole = type;
    whole.sizes = facts_.TypeOf(input)->sizes;
    whole.sizes.back() = type.sizes.back();
    std::vector<NamedArgument> inputs = {{"input", Ref{input}}, {"weight", Ref{weight}}};
    if (bias != kNoValue) inputs.push_back({"bias", Ref{bias}});
    ValueIndex mapped = out_.Add(node, "linear.default", std::move(inputs), whole);
    while (whole.sizes.size() > 2) {
      whole.sizes.erase(whole.sizes.begin() + 1);
      mapped = out_.Add(node, "squeeze.dim", {{"self", Ref{mapped}}, {"dim", int64_t{1}}}, whole);
    }
    return mapped;
  }

  ValueIndex AddGather(const Node& node, const Gather& gather, const Size& count) {
    TensorType type = *facts_.TypeOf(gather.table);
    type.sizes[0] = count;
    const ValueIndex result = out_.NewValue(node, type);
    const Ref table{gather.table}, index{gather.index};
    switch (gather.by) {
      case Gather::By::kEmbedding:
        return out_.Add(node, "embedding.default", {{"weight", table}, {"indices", index}}, result);
      case Gather::By::kIndexSelect:
        return out_.Add(node, "index_select.default", {{"self", table}, {"dim", int64_t{0}}, {"index", index}}, result);
      case Gather::By::kIndex:
        return out_.Add(node, "index.Tensor", {{"self", table}, {"indices", Refs{{gather.index}}}}, result);
    }
    return kNoValue;
  }

  // Makes `value`, which the last node computed, the result of `node`. Adds dimensions of size 1 until there are
  // `dimensions`.
  void Define(const Node& node, ValueIndex value, size_t dimensions, ValueIndex result) {
    for (size_t i = 2; i < dimensions; ++i) {
      TensorType type = *facts_.TypeOf(value);
      type.sizes.insert(type.sizes.begin() + 1, {.number = 1});
      value = out_.Add(node, "unsqueeze.default", {{"self", Ref{value}}, {"dim", int64_t{1}}}, type);
    }
    out_.Finish(node, result);
  }

  Program program_;  // values are added to this copy; its nodes stay as they are
  RowFacts facts_;
  const size_t first_new_ = program_.graph.values.size();
  NodeWriter out_{program_.graph.values};
  std::map<ValueIndex, int> uses_;
  std::map<std::tuple<ValueIndex, ValueIndex, ValueIndex>, ValueIndex> tables_;  // by table, weight and bias
  bool rewritten_ = false;
};

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
  // Matrices of `inputs` rows and `outputs` columns. Each matrix is one row of the gather's table.
  struct Matrices {
    Gather gather;
    int64_t count = 0, inputs = 0, outputs = 0;
  };

  // Returns the gather whose rows the value holds, if it is a single gather with factor 1.
  std::optional<Gather> GatherOf(ValueIndex value) const {
    const auto rows = facts_.RowsOf(value);
    if (!rows || rows->size() != 1 || (*rows)[0].sum.size() != 1 || (*rows)[0].sum[0].factor != 1) return std::nullopt;
    // A negative index counts from the end, so it would select another row in a table of another length. So the gather
    // must refuse negative indices, and its index must be one of the step's inputs, which are never negative.
    const Gather& gather = (*rows)[0].sum[0].gather;
    const bool checked = gather.by != Gather::By::kIndex && of_inputs_.contains(gather.index);
    return checked ? std::optional(gather) : std::nullopt;
  }

  // Learns whether the node's result is a part of one of the step's inputs.
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

  // Rewrites the product of rows [E, 1, K] with matrices [E, K, O].
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

  Program program_;  // values are added to this copy; its nodes stay as they are
  RowFacts facts_;
  NodeWriter out_{program_.graph.values};
  std::map<ValueIndex, Matrices> matrices_;
  std::set<ValueIndex> of_inputs_;
};

}  // namespace

std::optional<Program> WithNodeLinears(const Program& program) { return LinearRewriter(program).Run(); }

std::optional<Program> WithCategoryProducts(const Program& program) { return CategoryRewriter(program).Run(); }

}  // namespace permafrost::program
