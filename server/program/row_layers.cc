#include "program/rewritings.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "program/node_writer.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

// A recurrent layer operator may become at most kMostCells cells. All recurrent layer operators of a program together
// may become at most kMostCellsOfAll cells. An operator beyond these limits is not rewritten.
constexpr int64_t kMostCells = 64, kMostCellsOfAll = 256;

bool IsNumberOne(const Node& node, std::string_view name) {
  const Argument* argument = ArgumentOf(node, name);
  if (argument == nullptr || std::holds_alternative<None>(*argument)) return true;
  return RealOf(*argument) == 1;
}

class LinearFormsWriter {
 public:
  explicit LinearFormsWriter(const Program& program) : program_(program) {}

  std::optional<Program> Run() {
    bool rewritten = false;
    for (const Node& node : program_.graph.nodes) {
      if (Rewrite(node)) {
        rewritten = true;
      } else {
        out_.nodes.push_back(node);
      }
    }
    return rewritten ? std::optional(WithNodes(program_, std::move(out_.nodes))) : std::nullopt;
  }

 private:
  bool Rewrite(const Node& node) {
    const std::string op = OperatorOf(node);
    const auto parsed = ParseOperator(node.target);
    if (!parsed || (!parsed->overload.empty() && parsed->overload != "input")) return false;
    if (op == "aten::matmul") return RewriteProduct(node, "self", "other", kNoValue);
    if (op == "aten::mm") return RewriteProduct(node, "self", "mat2", kNoValue);
    if (op == "aten::addmm") {
      const ValueIndex bias = ValueOf(node, "self");
      return IsFloating(bias, 1) && IsNumberOne(node, "beta") && IsNumberOne(node, "alpha") &&
             RewriteProduct(node, "mat1", "mat2", bias);
    }
    for (const auto& [cell, layers, kind] : kRecurrent) {
      if (op == cell) return RewriteCell(node, kind);
      if (op == layers) return RewriteLayers(node, kind);
    }
    return false;
  }

  const TensorType* TypeOf(ValueIndex value) const {
    if (value == kNoValue || !program_.graph.values[value].type) return nullptr;
    return &*program_.graph.values[value].type;
  }
  bool IsFloating(ValueIndex value, size_t dimensions) const {
    const TensorType* type = TypeOf(value);
    return type != nullptr && IsReal(type->dtype) && type->sizes.size() == dimensions;
  }
  bool IsMatrix(ValueIndex value, DType dtype) const {
    const auto is_known = [](const Size& size) { return size.expression.empty() && size.number > 0; };
    return IsFloating(value, 2) && TypeOf(value)->dtype == dtype && std::ranges::all_of(TypeOf(value)->sizes, is_known);
  }

  // Rewrites the product of rows [..., in] with a matrix [in, out], plus bias [out] unless it is kNoValue.
  bool RewriteProduct(const Node& node, std::string_view rows_name, std::string_view matrix_name, ValueIndex bias) {
    const ValueIndex rows = ValueOf(node, rows_name), matrix = ValueOf(node, matrix_name), result = ResultOf(node);
    const TensorType* of_rows = TypeOf(rows);
    if (of_rows == nullptr || of_rows->sizes.size() < 2 || result == kNoValue) return false;
    if (!IsFloating(rows, of_rows->sizes.size()) || !IsMatrix(matrix, of_rows->dtype)) return false;
    TensorType turned = *TypeOf(matrix);
    if (bias != kNoValue && (TypeOf(bias)->dtype != turned.dtype || TypeOf(bias)->sizes[0] != turned.sizes[1])) {
      return false;
    }
    std::swap(turned.sizes[0], turned.sizes[1]);
    const ValueIndex weight = out_.Add(node, "t.default", {{"self", Ref{matrix}}}, std::move(turned));
    std::vector<NamedArgument> inputs = {{"input", Ref{rows}}, {"weight", Ref{weight}}};
    if (bias != kNoValue) inputs.push_back({"bias", Ref{bias}});
    out_.Add(node, "linear.default", std::move(inputs), result);
    return true;
  }

  // A kind of recurrent cell.
  enum class Kind { kGru, kLstm, kTanh, kRelu };
  static int64_t GatesOf(Kind kind) { return kind == Kind::kLstm ? 4 : kind == Kind::kGru ? 3 : 1; }
  // The weights of a cell. Biases are kNoValue if the cell has none.
  struct Weights {
    ValueIndex input = kNoValue, state = kNoValue, input_bias = kNoValue, state_bias = kNoValue;
  };
  // The state of a cell: tensors of [N, h]. Only an LSTM has `memory`.
  struct State {
    ValueIndex hidden = kNoValue, memory = kNoValue;
  };
  struct Cell {
    const Node& node;  // the node that the cell replaces
    Kind kind;
    Weights weights;
    TensorType state;  // [N, h]
  };

  bool Fits(const Cell& cell, ValueIndex rows) const {
    const TensorType* of_rows = TypeOf(rows);
    const Size& width = cell.state.sizes[1];
    if (of_rows == nullptr || !IsFloating(rows, of_rows->sizes.size()) || !width.expression.empty()) return false;
    return std::ranges::all_of(std::array{cell.weights.input, cell.weights.state}, [&](ValueIndex weight) {
      if (!IsMatrix(weight, of_rows->dtype)) return false;
      const int64_t rows_of_weight = TypeOf(weight)->sizes[0].number, gates = GatesOf(cell.kind);
      return rows_of_weight % gates == 0 && rows_of_weight / gates == width.number &&
             cell.state.dtype == of_rows->dtype;
    });
  }
  // Maps rows by one of the cell's weights, the input weight or the state weight. Returns [..., gates * h].
  ValueIndex Map(const Cell& cell, ValueIndex rows, ValueIndex weight, ValueIndex bias) {
    TensorType type = *TypeOf(rows);
    type.sizes.back() = Size{.number = GatesOf(cell.kind) * cell.state.sizes[1].number, .expression = {}};
    std::vector<NamedArgument> inputs = {{"input", Ref{rows}}, {"weight", Ref{weight}}};
    if (bias != kNoValue) inputs.push_back({"bias", Ref{bias}});
    return out_.Add(cell.node, "linear.default", std::move(inputs), std::move(type));
  }
  // Splits [N, gates * h] into one [N, h] for each gate.
  std::vector<ValueIndex> Split(const Cell& cell, ValueIndex mapped) {
    return out_.AddList(cell.node, "torch.ops.aten.split.Tensor",
                        {{"self", Ref{mapped}}, {"split_size", cell.state.sizes[1].number}, {"dim", int64_t{1}}},
                        std::vector<TensorType>(static_cast<size_t>(GatesOf(cell.kind)), cell.state));
  }
  ValueIndex Of(const Cell& cell, std::string_view op, ValueIndex a) {
    return out_.Add(cell.node, op, {{"self", Ref{a}}}, cell.state);
  }
  ValueIndex Of(const Cell& cell, std::string_view op, ValueIndex a, ValueIndex b) {
    return out_.Add(cell.node, op, {{"self", Ref{a}}, {"other", Ref{b}}}, cell.state);
  }

  // Returns the state after `before`. `mapped` is [N, gates * h], the result of Map for the cell's input. Sources:
  // torch.nn.GRUCell, LSTMCell, RNNCell.
  State Next(const Cell& cell, ValueIndex mapped, const State& before) {
    const std::vector<ValueIndex> i = Split(cell, mapped);
    const std::vector<ValueIndex> h =
        Split(cell, Map(cell, before.hidden, cell.weights.state, cell.weights.state_bias));
    const auto of = [&](std::string_view op, auto... values) { return Of(cell, op, values...); };
    const auto gate = [&](std::string_view op, size_t g) { return of(op, of("add.Tensor", i[g], h[g])); };
    if (cell.kind == Kind::kTanh) return {.hidden = gate("tanh.default", 0)};
    if (cell.kind == Kind::kRelu) return {.hidden = gate("relu.default", 0)};
    if (cell.kind == Kind::kGru) {
      const ValueIndex reset = gate("sigmoid.default", 0), update = gate("sigmoid.default", 1);
      const ValueIndex made = of("tanh.default", of("add.Tensor", i[2], of("mul.Tensor", h[2], reset)));
      const ValueIndex kept = of("mul.Tensor", of("sub.Tensor", before.hidden, made), update);
      return {.hidden = of("add.Tensor", kept, made)};
    }
    const ValueIndex in = gate("sigmoid.default", 0), forget = gate("sigmoid.default", 1),
                     made = gate("tanh.default", 2), out = gate("sigmoid.default", 3);
    const ValueIndex memory = of("add.Tensor", of("mul.Tensor", forget, before.memory), of("mul.Tensor", in, made));
    return {.hidden = of("mul.Tensor", out, of("tanh.default", memory)), .memory = memory};
  }

  // Makes `value` the node's output, unless nothing reads that output.
  void Return(const Node& node, size_t output, ValueIndex value) {
    const ValueIndex wanted = node.outputs[output].values[0];
    if (wanted != kNoValue) out_.Add(node, "alias.default", {{"self", Ref{value}}}, wanted);
  }
  static bool HasOutputs(const Node& node, size_t count) {
    return node.outputs.size() == count &&
           std::ranges::none_of(node.outputs, [](const Output& output) { return output.is_list; });
  }

  // Takes `cells` from the program's budget of cells. Returns false if too few are left. Without the budget, a file
  // could describe more cells than fit in memory.
  bool TakeFromBudget(int64_t cells) {
    if (cells > cells_left_) return false;
    cells_left_ -= cells;
    return true;
  }

  bool RewriteCell(const Node& node, Kind kind) {
    State state{.hidden = ValueOf(node, "hx")};
    if (const std::vector<ValueIndex> states = ListOf(node, "hx"); states.size() == 2)
      state = {.hidden = states[0], .memory = states[1]};
    const bool lstm = kind == Kind::kLstm;
    if (!HasOutputs(node, lstm ? 2 : 1) || lstm != (state.memory != kNoValue) || !IsFloating(state.hidden, 2)) {
      return false;
    }
    const ValueIndex input = ValueOf(node, "input");
    const Cell cell{
        .node = node,
        .kind = kind,
        .weights = {ValueOf(node, "w_ih"), ValueOf(node, "w_hh"), ValueOf(node, "b_ih"), ValueOf(node, "b_hh")},
        .state = *TypeOf(state.hidden)};
    if (!IsFloating(input, 2) || !Fits(cell, input) || !TakeFromBudget(1)) return false;
    const State next = Next(cell, Map(cell, input, cell.weights.input, cell.weights.input_bias), state);
    Return(node, 0, next.hidden);
    if (lstm) Return(node, 1, next.memory);
    return true;
  }

  std::vector<ValueIndex> Unbind(const Node& node, ValueIndex from, int64_t dim) {
    TensorType type = *TypeOf(from);
    const auto count = static_cast<size_t>(type.sizes[static_cast<size_t>(dim)].number);
    type.sizes.erase(type.sizes.begin() + dim);
    return out_.AddList(node, "torch.ops.aten.unbind.int", {{"self", Ref{from}}, {"dim", dim}},
                        std::vector<TensorType>(count, type));
  }
  ValueIndex Stack(const Node& node, std::vector<ValueIndex> parts, int64_t dim) {
    TensorType type = *TypeOf(parts[0]);
    type.sizes.insert(type.sizes.begin() + dim, Size{.number = std::ssize(parts), .expression = {}});
    return out_.Add(node, "stack.default", {{"tensors", Refs{std::move(parts)}}, {"dim", dim}}, std::move(type));
  }

  // Recurrent layers over sequences of a known length, without dropout.
  struct Layers {
    Kind kind;
    ValueIndex input = kNoValue;
    std::vector<ValueIndex> states, weights;  // the states and weights of all layers
    int64_t count = 0, directions = 1, time = 0, steps = 0;
    bool biases = false;
  };
  std::optional<Layers> LayersOf(const Node& node, Kind kind) const {
    Layers layers{
        .kind = kind, .input = ValueOf(node, "input"), .states = ListOf(node, "hx"), .weights = ListOf(node, "params")};
    if (layers.states.empty()) layers.states = {ValueOf(node, "hx")};
    const auto bidirectional = FlagOf(node, "bidirectional", std::nullopt),
               batch_first = FlagOf(node, "batch_first", std::nullopt),
               biases = FlagOf(node, "has_biases", std::nullopt);
    if (!bidirectional || !batch_first || !biases) return std::nullopt;
    layers.count = NumberOf(node, "num_layers", 0).value_or(0);
    layers.directions = *bidirectional ? 2 : 1;
    layers.time = *batch_first ? 1 : 0;
    layers.biases = *biases;
    const size_t outputs = kind == Kind::kLstm ? 3 : 2;
    if (Draws(node) || !HasOutputs(node, outputs) || layers.states.size() + 1 != outputs || layers.count < 1 ||
        layers.count > kMostCells || !IsFloating(layers.input, 3)) {
      return std::nullopt;
    }
    const Size& steps = TypeOf(layers.input)->sizes[static_cast<size_t>(layers.time)];
    layers.steps = steps.expression.empty() ? steps.number : 0;
    const int64_t cells = layers.count * layers.directions;
    const bool is_small = layers.steps <= kMostCells && cells * layers.steps <= kMostCells;
    if (layers.steps < 1 || !is_small || std::ssize(layers.weights) != cells * (layers.biases ? 4 : 2)) {
      return std::nullopt;
    }
    const bool states_fit = std::ranges::all_of(layers.states, [&](ValueIndex state) {
      return IsFloating(state, 3) && TypeOf(state)->sizes[0] == Size{.number = cells, .expression = {}};
    });
    return states_fit ? std::optional(std::move(layers)) : std::nullopt;
  }
  Cell CellOf(const Node& node, const Layers& layers, int64_t place) const {
    const size_t of_one = layers.biases ? 4 : 2, first = static_cast<size_t>(place) * of_one;
    TensorType state = *TypeOf(layers.states[0]);
    state.sizes.erase(state.sizes.begin());
    Cell cell{.node = node,
              .kind = layers.kind,
              .weights = {.input = layers.weights[first], .state = layers.weights[first + 1]},
              .state = std::move(state)};
    if (layers.biases) {
      cell.weights.input_bias = layers.weights[first + 2];
      cell.weights.state_bias = layers.weights[first + 3];
    }
    return cell;
  }

  bool RewriteLayers(const Node& node, Kind kind) {
    const std::optional<Layers> found = LayersOf(node, kind);
    if (!found) return false;
    const Layers& layers = *found;
    for (int64_t place = 0; place < layers.count * layers.directions; ++place) {
      if (!Fits(CellOf(node, layers, place), layers.input)) return false;
    }
    if (!TakeFromBudget(layers.count * layers.directions * layers.steps)) return false;
    std::vector<std::vector<ValueIndex>> states;
    states.reserve(layers.states.size());
    for (const ValueIndex state : layers.states) states.push_back(Unbind(node, state, 0));
    const auto is_read = [&](size_t output) { return node.outputs[output].values[0] != kNoValue; };
    ValueIndex sequence = layers.input;
    std::vector<ValueIndex> hidden, memory;  // by layer and direction: the last state
    for (int64_t layer = 0; layer < layers.count; ++layer) {
      std::vector<std::vector<ValueIndex>> made(static_cast<size_t>(layers.steps));  // by step, then by direction
      for (int64_t direction = 0; direction < layers.directions; ++direction) {
        const int64_t place = layer * layers.directions + direction;
        const auto at = static_cast<size_t>(place);
        const State first{.hidden = states[0][at], .memory = states.size() == 2 ? states[1][at] : kNoValue};
        const State last = RunCell(node, layers, place, sequence, first, made);
        hidden.push_back(last.hidden);
        memory.push_back(last.memory);
      }
      if (layer + 1 < layers.count || is_read(0)) sequence = Joined(node, layers, made);
    }
    Return(node, 0, sequence);
    if (is_read(1)) Return(node, 1, Stack(node, std::move(hidden), 0));
    if (kind == Kind::kLstm && is_read(2)) Return(node, 2, Stack(node, std::move(memory), 0));
    return true;
  }
  State RunCell(const Node& node, const Layers& layers, int64_t place, ValueIndex sequence, State state,
                std::vector<std::vector<ValueIndex>>& made) {
    const Cell cell = CellOf(node, layers, place);
    const ValueIndex mapped = Map(cell, sequence, cell.weights.input, cell.weights.input_bias);
    const std::vector<ValueIndex> steps = Unbind(node, mapped, layers.time);
    for (size_t i = 0; i < steps.size(); ++i) {
      const size_t step = place % layers.directions == 0 ? i : steps.size() - 1 - i;
      state = Next(cell, steps[step], state);
      made[step].push_back(state.hidden);
    }
    return state;
  }
  ValueIndex Joined(const Node& node, const Layers& layers, const std::vector<std::vector<ValueIndex>>& made) {
    std::vector<ValueIndex> steps;
    for (const std::vector<ValueIndex>& of_step : made) {
      ValueIndex step = of_step[0];
      if (of_step.size() == 2) {
        TensorType type = *TypeOf(step);
        type.sizes[1].number *= 2;
        step = out_.Add(node, "cat.default", {{"tensors", Refs{of_step}}, {"dim", int64_t{1}}}, std::move(type));
      }
      steps.push_back(step);
    }
    return Stack(node, std::move(steps), layers.time);
  }

  struct Recurrent {
    std::string_view cell, layers;
    Kind kind;
  };
  static constexpr Recurrent kRecurrent[] = {{"aten::gru_cell", "aten::gru", Kind::kGru},
                                             {"aten::lstm_cell", "aten::lstm", Kind::kLstm},
                                             {"aten::rnn_tanh_cell", "aten::rnn_tanh", Kind::kTanh},
                                             {"aten::rnn_relu_cell", "aten::rnn_relu", Kind::kRelu}};

  Program program_;  // values are added to this copy; its nodes do not change
  NodeWriter out_{program_.graph.values};
  int64_t cells_left_ = kMostCellsOfAll;
};

class RowLayersWriter {
 public:
  RowLayersWriter(const Program& program, const RowLayersOptions& options)
      : options_(options), made_{.program = program, .linears = 0, .norms = 0, .embeddings = 0} {
    std::vector<Node>& nodes = made_.program.graph.nodes;
    users_.resize(program.graph.values.size());
    const auto use = [&](ValueIndex value, size_t node) {
      if (value != kNoValue) users_[value].push_back(node);
    };
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const ValueIndex value : ValuesOf(nodes[i])) use(value, i);
    for (const std::vector<ValueIndex>* outputs : {&program.graph.outputs, &program.outputs})
      for (const ValueIndex output : *outputs) use(output, nodes.size());
    for (const BufferUpdate& update : program.updates) use(update.value, nodes.size());
  }

  std::optional<RowLayers> Run() {
    std::vector<Node>& nodes = made_.program.graph.nodes;
    std::vector<char> merged(nodes.size(), 0);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::string op = OperatorOf(nodes[i]);
      const bool linear = op == "aten::linear" && IsLinear(nodes[i]);
      const bool norm = options_.norms && op == "aten::batch_norm" && IsNorm(nodes[i]);
      if (op == "aten::embedding" && IsEmbedding(nodes[i])) {
        ++made_.embeddings;
        SetEmbedding(nodes[i]);
      }
      if (!linear && !norm) continue;
      const std::optional<size_t> relu = ReluBehind(nodes[i]);
      if (linear) {
        ++made_.linears;
        SetCall(nodes[i], "row_linear", {"input", "weight", "bias"}, relu.has_value());
      } else {
        ++made_.norms;
        SetCall(nodes[i], "row_norm", {"input", "weight", "bias", "running_mean", "running_var", "momentum", "eps"},
                relu.has_value());
      }
      if (!relu) continue;
      nodes[i].outputs = nodes[*relu].outputs;
      merged[*relu] = 1;
    }
    if (made_.linears + made_.norms + made_.embeddings == 0) return std::nullopt;
    size_t place = 0;
    std::erase_if(nodes, [&](const Node&) { return merged[place++] != 0; });
    return std::move(made_);
  }

 private:
  const TensorType* TypeOf(ValueIndex value) const {
    if (value == kNoValue) return nullptr;
    const std::optional<TensorType>& type = made_.program.graph.values[value].type;
    return type && IsReal(type->dtype) ? &*type : nullptr;
  }
  // Returns true if the argument is a tensor with the element type of `of` and `dimensions` dimensions.
  bool HasType(const Node& node, std::string_view argument, const TensorType& of, size_t dimensions) const {
    const TensorType* type = TypeOf(ValueOf(node, argument));
    return type != nullptr && type->dtype == of.dtype && type->sizes.size() == dimensions;
  }

  bool IsLinear(const Node& node) const {
    const TensorType* x = TypeOf(ValueOf(node, "input"));
    if (x == nullptr || x->sizes.empty() || ResultOf(node) == kNoValue || !HasType(node, "weight", *x, 2)) return false;
    const Argument* bias = ArgumentOf(node, "bias");
    if (bias == nullptr || std::holds_alternative<None>(*bias)) return true;
    // If the bias is one number for all columns, the map stays aten::linear, since row_linear refuses such a bias.
    return HasType(node, "bias", *x, 1) &&
           TypeOf(ValueOf(node, "bias"))->sizes[0] == TypeOf(ValueOf(node, "weight"))->sizes[0];
  }

  bool IsNorm(const Node& node) const {
    const TensorType* x = TypeOf(ValueOf(node, "input"));
    if (x == nullptr || x->sizes.size() != 2 || ResultOf(node) == kNoValue || FlagOf(node, "training", false) != true) {
      return false;
    }
    constexpr std::string_view kColumns[] = {"weight", "bias", "running_mean", "running_var"};
    constexpr std::string_view kNumbers[] = {"momentum", "eps"};
    return std::ranges::all_of(kColumns, [&](std::string_view name) { return HasType(node, name, *x, 1); }) &&
           std::ranges::all_of(kNumbers, [&](std::string_view name) {
             const Argument* number = ArgumentOf(node, name);
             return number != nullptr && std::holds_alternative<double>(*number);
           });
  }

  bool IsEmbedding(const Node& node) const {
    const ValueIndex indices = ValueOf(node, "indices");
    if (!IsPlainEmbedding(node) || indices == kNoValue || ResultOf(node) == kNoValue) return false;
    const std::optional<TensorType>& of_indices = made_.program.graph.values[indices].type;
    const TensorType* table = TypeOf(ValueOf(node, "weight"));
    return of_indices && of_indices->dtype == DType::kInt64 && table != nullptr && table->sizes.size() == 2;
  }

  // Returns the ReLU that is the only user of the node's result.
  std::optional<size_t> ReluBehind(const Node& node) const {
    const std::vector<Node>& nodes = made_.program.graph.nodes;
    const std::vector<size_t>& users = users_[ResultOf(node)];
    if (users.size() != 1 || users[0] == nodes.size()) return std::nullopt;
    const std::string op = OperatorOf(nodes[users[0]]);
    const bool relu = (op == "aten::relu" || op == "aten::relu_") && ResultOf(nodes[users[0]]) != kNoValue;
    return relu ? std::optional(users[0]) : std::nullopt;
  }

  static void SetEmbedding(Node& node) {
    node.inputs = {{"table", *ArgumentOf(node, "weight")}, {"indices", *ArgumentOf(node, "indices")}};
    node.target = "torch.ops.permafrost.row_embedding.default";
  }
  static void SetCall(Node& node, const std::string& op, const std::vector<std::string>& arguments, bool relu) {
    std::vector<NamedArgument> inputs;
    for (const std::string& name : arguments) {
      const Argument* argument = ArgumentOf(node, name);
      inputs.push_back({name == "input" ? "x" : name, argument == nullptr ? Argument(None()) : *argument});
    }
    inputs.push_back({"relu", relu});
    node.inputs = std::move(inputs);
    node.target = "torch.ops.permafrost." + op + ".default";
  }

  const RowLayersOptions options_;
  RowLayers made_;
  // By value: the indices of the nodes that read it. A use outside the graph has the number of nodes as its index.
  std::vector<std::vector<size_t>> users_;
};

}  // namespace

std::optional<Program> WithLinearForms(const Program& program) { return LinearFormsWriter(program).Run(); }

std::optional<RowLayers> WithRowLayers(const Program& program, const RowLayersOptions& options) {
  return RowLayersWriter(program, options).Run();
}

bool HasFloat32Linears(const Program& program) {
  return std::ranges::any_of(program.graph.nodes, [&](const Node& node) {
    const ValueIndex weight = ValueOf(node, "weight");
    if (weight == kNoValue || OperatorOf(node) != "permafrost::row_linear") return false;
    const std::optional<TensorType>& type = program.graph.values[weight].type;
    return type && type->dtype == DType::kFloat32;
  });
}

}  // namespace permafrost::program
