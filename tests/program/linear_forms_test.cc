// Programs whose matrix products and recurrent cells are rewritten as linear maps. Results are equal up to rounding.
#include "program/rewritings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program/operators.h"
#include "program/rewritten.h"
#include "program/typed_writer.h"

namespace permafrost::program {
namespace {

void ExpectUnchanged(const std::shared_ptr<const Program>& program) { EXPECT_FALSE(WithLinearForms(*program)); }

// Multiplies h [N, 16] by a table [16, 5] with the operator `op`. `first` and `second` are the names of its matrix
// arguments.
ValueIndex Product(TypedWriter& w, const std::string& op, const std::string& first, const std::string& second,
                   std::vector<NamedArgument> more = {}) {
  more.push_back({second, Ref{w.Table(16, 5)}});
  return w.Shape(op, w.h, {TypedWriter::Nodes(), TypedWriter::Of(5)}, std::move(more), first);
}

TEST(WithLinearForms, WritesProductsWithAMatrixAsLinearMaps) {
  const struct {
    const char *op, *first, *second;
  } kProducts[] = {{"matmul.default", "self", "other"}, {"mm.default", "self", "mat2"}};
  for (const auto& [op, first, second] : kProducts) {
    SCOPED_TRACE(op);
    TypedWriter w;
    const Program made = ExpectRewritten(&WithLinearForms, w.Return({w.Relu(Product(w, op, first, second))}));
    EXPECT_EQ(Count(made, "linear.default"), 1);
    EXPECT_EQ(Count(made, op), 0);
  }
}

TEST(WithLinearForms, KeepsRowsOfMoreDimensions) {
  TypedWriter w;
  const std::vector<Size> sizes = {TypedWriter::Nodes(), TypedWriter::Of(4), TypedWriter::Of(4)};
  const ValueIndex rows = w.Shape("view.default", w.h, sizes, {{"size", Ints{{int64_t{-1}, int64_t{4}, int64_t{4}}}}});
  std::vector<Size> made = sizes;
  made[2] = TypedWriter::Of(5);
  const ValueIndex y = w.Shape("matmul.default", rows, made, {{"other", Ref{w.Table(4, 5)}}});
  EXPECT_EQ(Count(ExpectRewritten(&WithLinearForms, w.Return({y})), "linear.default"), 1);
}

TEST(WithLinearForms, TakesTheBiasOfAddmm) {
  TypedWriter w;
  const Program made = ExpectRewritten(
      &WithLinearForms, w.Return({Product(w, "addmm.default", "mat1", "mat2", {{"self", Ref{w.bias}}})}));
  EXPECT_EQ(Count(made, "linear.default"), 1);
  EXPECT_EQ(Count(made, "addmm.default"), 0);
}

TEST(WithLinearForms, LeavesOtherProducts) {
  {
    TypedWriter w;  // scales the bias by a factor
    ExpectUnchanged(
        w.Return({Product(w, "addmm.default", "mat1", "mat2", {{"self", Ref{w.bias}}, {"beta", int64_t{2}}})}));
  }
  {
    TypedWriter w;  // has a bias of a single number
    ExpectUnchanged(w.Return({Product(w, "addmm.default", "mat1", "mat2", {{"self", Ref{w.Vector(1)}}})}));
  }
  {
    TypedWriter w;  // has as many columns as nodes
    const ValueIndex turned = w.Shape("t.default", w.h, {TypedWriter::Of(16), TypedWriter::Nodes()}, {});
    ExpectUnchanged(w.Return(
        {w.Shape("matmul.default", w.h, {TypedWriter::Nodes(), TypedWriter::Nodes()}, {{"other", Ref{turned}}})}));
  }
}

// Returns the weights of a cell with `gates` gates, for rows of width 16 and a state of width 5.
std::vector<NamedArgument> CellWeights(TypedWriter& w, int64_t gates, bool bias) {
  std::vector<NamedArgument> weights = {{"w_ih", Ref{w.Table(gates * 5, 16)}}, {"w_hh", Ref{w.Table(gates * 5, 5)}}};
  for (const char* name : {"b_ih", "b_hh"}) {
    if (bias) weights.push_back({name, Ref{w.Vector(gates * 5)}});
  }
  return weights;
}
ValueIndex StateOf(TypedWriter& w) { return w.Linear(w.h, w.weight, kNoValue); }

TEST(WithLinearForms, WritesGruCells) {
  for (const bool bias : {false, true}) {
    SCOPED_TRACE(bias);
    TypedWriter w;
    std::vector<NamedArgument> more = CellWeights(w, 3, bias);
    const ValueIndex state = StateOf(w);
    more.push_back({"hx", Ref{state}});
    const auto program = w.Return({w.Shape("gru_cell.default", w.h, w.SizesOf(state), more, "input")});
    const Program made = ExpectRewritten(&WithLinearForms, program);
    EXPECT_EQ(Count(made, "linear.default"), 3) << "with the one that makes the state";
    EXPECT_EQ(Count(made, "gru_cell.default"), 0);
  }
}

// Gives the operator `op` `count` outputs. The program returns the outputs listed in `read`.
std::shared_ptr<const Program> Reading(Program program, const std::string& op, size_t count,
                                       const std::vector<size_t>& read) {
  Node& node = *std::ranges::find(program.graph.nodes, op, &OperatorOf);
  const ValueIndex first = program.outputs[0];
  node.outputs.assign(count, {.values = {kNoValue}, .is_list = false});
  program.outputs.clear();
  for (const size_t i : read) {
    ValueIndex value = first;
    if (i > 0) {
      program.graph.values.push_back(program.graph.values[first]);
      value = static_cast<ValueIndex>(program.graph.values.size() - 1);
      program.graph.values[value].name = "output_" + std::to_string(i);
    }
    node.outputs[i].values[0] = value;
    program.outputs.push_back(value);
  }
  program.graph.outputs = program.outputs;
  return std::make_shared<const Program>(std::move(program));
}

TEST(WithLinearForms, WritesLstmCells) {
  for (const std::vector<size_t>& read : {std::vector<size_t>{0, 1}, {0}, {1}}) {
    SCOPED_TRACE(testing::PrintToString(read));
    TypedWriter w;
    std::vector<NamedArgument> more = CellWeights(w, 4, /*bias=*/true);
    const ValueIndex state = StateOf(w), memory = w.Linear(w.h, w.Weight(16), kNoValue);
    more.push_back({"hx", Refs{{state, memory}}});
    const Program cell = *w.Return({w.Shape("lstm_cell.default", w.h, w.SizesOf(state), more, "input")});
    const Program made = ExpectRewritten(&WithLinearForms, Reading(cell, "aten::lstm_cell", 2, read));
    EXPECT_EQ(Count(made, "linear.default"), 4) << "with those that make the states";
    EXPECT_EQ(Count(made, "lstm_cell.default"), 0);
  }
}

TEST(WithLinearForms, WritesPlainCells) {
  for (const char* op : {"rnn_tanh_cell.default", "rnn_relu_cell.default"}) {
    SCOPED_TRACE(op);
    TypedWriter w;
    std::vector<NamedArgument> more = CellWeights(w, 1, /*bias=*/true);
    const ValueIndex state = StateOf(w);
    more.push_back({"hx", Ref{state}});
    const auto program = w.Return({w.Shape(op, w.h, w.SizesOf(state), more, "input")});
    EXPECT_EQ(Count(ExpectRewritten(&WithLinearForms, program), op), 0);
  }
}

// The layers of a recurrent operator. It reads each row of h as a sequence of 4 steps of 4 values.
struct LayersCase {
  std::string op;
  int64_t gates = 1, layers = 1;
  bool bidirectional = false, batch_first = false, biases = true;
  double dropout = 0;
};
std::shared_ptr<const Program> LayersOf(const LayersCase& of, const std::vector<size_t>& read) {
  constexpr int64_t kSteps = 4, kIn = 4, kWidth = 5;
  const auto number = [](int64_t n) { return TypedWriter::Of(n); };
  TypedWriter w;
  ValueIndex input = w.Shape("view.default", w.h, {TypedWriter::Nodes(), number(kSteps), number(kIn)},
                             {{"size", Ints{{int64_t{-1}, kSteps, kIn}}}});
  if (!of.batch_first) {
    input = w.Shape("transpose.int", input, {number(kSteps), TypedWriter::Nodes(), number(kIn)},
                    {{"dim0", int64_t{0}}, {"dim1", int64_t{1}}});
  }
  const int64_t directions = of.bidirectional ? 2 : 1, cells = of.layers * directions;
  const bool lstm = of.gates == 4;
  std::vector<ValueIndex> states, weights;
  for (int kind = 0; kind < (lstm ? 2 : 1); ++kind) {
    std::vector<ValueIndex> each;
    for (int64_t cell = 0; cell < cells; ++cell) each.push_back(w.Linear(w.h, w.Weight(16), kNoValue));
    states.push_back(w.Stack(each));
  }
  for (int64_t cell = 0; cell < cells; ++cell) {
    weights.push_back(w.Table(of.gates * kWidth, cell < directions ? kIn : directions * kWidth));
    weights.push_back(w.Table(of.gates * kWidth, kWidth));
    for (int bias = 0; of.biases && bias < 2; ++bias) weights.push_back(w.Vector(of.gates * kWidth));
  }
  std::vector<Size> sizes = w.SizesOf(input);
  sizes[2] = number(directions * kWidth);
  const ValueIndex out = w.Shape(of.op + ".input", input, sizes,
                                 {{"hx", lstm ? Argument(Refs{states}) : Argument(Ref{states[0]})},
                                  {"params", Refs{weights}},
                                  {"has_biases", of.biases},
                                  {"num_layers", of.layers},
                                  {"dropout", of.dropout},
                                  {"train", true},
                                  {"bidirectional", of.bidirectional},
                                  {"batch_first", of.batch_first}},
                                 "input");
  return Reading(*w.Return({out}), "aten::" + of.op, lstm ? 3 : 2, read);
}

TEST(WithLinearForms, WritesRecurrentLayers) {
  const LayersCase kCases[] = {{.op = "gru", .gates = 3},
                               {.op = "gru", .gates = 3, .layers = 2, .batch_first = true, .biases = false},
                               {.op = "lstm", .gates = 4, .bidirectional = true, .batch_first = true},
                               {.op = "lstm", .gates = 4, .layers = 2, .bidirectional = true},
                               {.op = "rnn_tanh", .gates = 1, .bidirectional = true},
                               {.op = "rnn_relu", .gates = 1, .layers = 3}};
  for (const LayersCase& of : kCases) {
    SCOPED_TRACE(testing::Message() << of.op << ", " << of.layers << " layers");
    const size_t outputs = of.gates == 4 ? 3 : 2;
    for (size_t one = 0; one < outputs; ++one) ExpectRewritten(&WithLinearForms, LayersOf(of, {one}));
    std::vector<size_t> all = {0, 1};
    if (outputs == 3) all.push_back(2);
    EXPECT_EQ(Count(ExpectRewritten(&WithLinearForms, LayersOf(of, all)), of.op + ".input"), 0);
  }
}

TEST(WithLinearForms, LeavesLayersThatDropOrAreMany) {
  ExpectUnchanged(LayersOf({.op = "gru", .gates = 3, .layers = 2, .dropout = 0.5}, {0}));
  ExpectUnchanged(LayersOf({.op = "gru", .gates = 3, .layers = 17}, {0}));
  // A program may have 256 cells. Each of these operators has 64, so four operators are rewritten.
  Program many = *LayersOf({.op = "gru", .gates = 3, .layers = 16}, {0});
  const auto gru = std::ranges::find(many.graph.nodes, "aten::gru", &OperatorOf);
  many.graph.nodes.insert(many.graph.nodes.end(), 5, Node(*gru));
  EXPECT_EQ(Count(*WithLinearForms(many), "gru.input"), 2);
  EXPECT_TRUE(WithLinearForms(*LayersOf({.op = "gru", .gates = 3, .layers = 16}, {0})));
  EXPECT_TRUE(WithLinearForms(*LayersOf({.op = "gru", .gates = 3, .layers = 1, .dropout = 0.5}, {0})))
      << "one does not drop";
}

TEST(WithLinearForms, LeavesCellsWhoseWeightsDoNotFit) {
  TypedWriter w;
  std::vector<NamedArgument> more = CellWeights(w, 4, /*bias=*/true);
  const ValueIndex state = StateOf(w);
  more.push_back({"hx", Ref{state}});
  ExpectUnchanged(w.Return({w.Shape("gru_cell.default", w.h, w.SizesOf(state), more, "input")}));
}

}  // namespace
}  // namespace permafrost::program
