// Fused message passing. Exported modules must give the same results with it, with and without the linear maps and
// batch norms of nn. Synthetic programs show what is fused.
#include "program/rewritings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/ops/edge_region.h"
#include "nn/ops/linear.h"
#include "program/exported.h"
#include "program/interpreter.h"
#include "program/operators.h"
#include "program/rewritings.h"
#include "program/rewritten.h"
#include "program/synthetic.h"
#include "program/typed_writer.h"

namespace permafrost::program {
namespace {

using at::Tensor;
using testing::HasSubstr;

// Returns the form in float64: its values, state and constants.
Form InDouble(const Form& form) {
  Program program = *form.program;
  const auto widen = [](DType& dtype) {
    if (dtype == DType::kFloat32) dtype = DType::kFloat64;
  };
  for (Graph::Value& value : program.graph.values)
    if (value.type) widen(value.type->dtype);
  for (Input& input : program.inputs) widen(input.type.dtype);
  for (State& state : program.state) widen(state.type.dtype);
  for (Node& node : program.graph.nodes)
    for (NamedArgument& input : node.inputs)
      if (auto* dtype = std::get_if<DType>(&input.value)) widen(*dtype);
  std::map<const c10::TensorImpl*, Tensor> own;  // keeps tied tensors tied
  std::vector<Tensor> state;
  for (const Tensor& tensor : form.state) {
    Tensor& copy = own[tensor.unsafeGetTensorImpl()];
    if (!copy.defined()) {
      copy = tensor.detach().clone();
      if (copy.scalar_type() == at::kFloat) copy = copy.to(at::kDouble);
      copy.set_requires_grad(tensor.requires_grad());
    }
    state.push_back(copy);
  }
  return {.program = std::make_shared<const Program>(std::move(program)), .state = std::move(state)};
}

Form WithoutLoops(Form form) {
  if (auto without = WithoutSelfLoops(*form.program))
    form.program = std::make_shared<const Program>(*std::move(without));
  return form;
}

struct Outcome {
  Tensor output;
  std::vector<Tensor> gradients, state;
};
// Random numbers come from libtorch's generator, in the same order in fused and unfused programs.
Outcome RunForm(const Form& form, const Tensors& tensors, bool trains) {
  const Form own = InDouble(form);
  Interpreter interpreter = MakeInterpreter(own);
  std::vector<c10::IValue> inputs = InputsOf(*own.program, tensors);
  for (c10::IValue& input : inputs)
    if (input.isTensor() && input.toTensor().scalar_type() == at::kFloat) input = input.toTensor().to(at::kDouble);
  at::manual_seed(5);
  const c10::AutoGradMode mode(trains);
  Outcome outcome;
  outcome.output = interpreter.Run(inputs)[0].toTensor();
  std::vector<Tensor> parameters;
  for (const Tensor& tensor : own.state)
    if (tensor.requires_grad()) parameters.push_back(tensor);
  if (trains) {
    outcome.gradients = torch::autograd::grad({outcome.output.square().sum()}, parameters, {}, std::nullopt, false,
                                              /*allow_unused=*/true);
  }
  outcome.state = own.state;
  return outcome;
}

bool AreClose(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return at::allclose(a.to(at::kDouble), b.to(at::kDouble), 1e-10, 1e-10, /*equal_nan=*/true);
}

void ExpectEqual(const Outcome& plain, const Outcome& fused) {
  EXPECT_TRUE(AreClose(plain.output, fused.output));
  ASSERT_EQ(plain.gradients.size(), fused.gradients.size());
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_TRUE(AreClose(plain.gradients[i], fused.gradients[i])) << "gradient " << i;
  }
  for (size_t i = 0; i < plain.state.size(); ++i) {
    EXPECT_TRUE(AreClose(plain.state[i], fused.state[i])) << "state " << i;
  }
}

// Maps exported modules to the least number of regions in their training form.
const std::map<std::string, size_t> kRegions = {
    {"appnp", 7}, {"cg", 3},    {"cheb", 5},       {"deeper_gcn", 3}, {"edgeconv", 3},    {"film", 3},
    {"gat", 5},   {"gatv2", 5}, {"gcn", 3},        {"gen", 3},        {"gen_softmax", 3}, {"general", 3},
    {"gin", 3},   {"gine", 3},  {"graphconv", 3},  {"le", 3},         {"nnconv", 3},      {"own", 3},
    {"pdn", 3},   {"pna", 3},   {"point_net", 3},  {"resgated", 3},   {"sage", 3},        {"schnet", 3},
    {"sg", 5},    {"tag", 7},   {"transformer", 3}};

class EdgeRegions : public WithExports {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(nn::RunsEdgeRegions(at::kCPU));
    // The linker leaves out operators that nothing calls.
    ASSERT_TRUE(nn::RowLinear(at::ones({1, 1}), at::ones({1, 1}), {}, false).defined());
    Export(kExportModules, "");
  }
};

TEST_F(EdgeRegions, AgreeWithTheProgram) {
  for (const std::string& name : Names()) {
    SCOPED_TRACE(name);
    const LoadedProgram loaded = Load(name);
    size_t regions = 0;
    for (const bool trains : {true, false}) {
      const Form plain = WithoutLoops(trains ? loaded.train() : loaded.eval());
      auto fused = WithEdgeRegions(*InDouble(plain).program, trains);
      if (!fused) continue;
      if (trains) regions = fused->regions.size();
      // The program's types are float64 already, and RunForm converts the state.
      Form other = plain;
      other.program = std::make_shared<const Program>(std::move(fused->program));
      for (const std::string suffix : {"", ".5-7-1", ".6-1-3"}) {
        SCOPED_TRACE(suffix);
        const Tensors tensors = suffix.empty() ? Expected(name) : ReadTensors(Archive(name).replace_extension(suffix));
        ExpectEqual(RunForm(plain, tensors, trains), RunForm(other, tensors, trains));
      }
    }
    const auto wanted = kRegions.find(name);
    if (wanted != kRegions.end()) {
      EXPECT_GE(regions, wanted->second);
    }
  }
}

int64_t CountOf(const Program& program, const std::string& op) {
  return std::ranges::count_if(program.graph.nodes, [&](const Node& node) { return OperatorOf(node) == op; });
}

TEST_F(EdgeRegions, AgreeWithTheProgramBesideRowLayers) {
  int64_t linears = 0, norms = 0;
  for (const std::string& name : Names()) {
    if (name == "tied") continue;  // its autocast region leaves float64 alone, but the program asserts bfloat16
    SCOPED_TRACE(name);
    const LoadedProgram loaded = Load(name);
    for (const bool trains : {true, false}) {
      const Form plain = WithoutLoops(trains ? loaded.train() : loaded.eval());
      Form other = plain;
      other.program = InDouble(plain).program;
      if (auto fused = WithEdgeRegions(*other.program, trains)) {
        other.program = std::make_shared<const Program>(std::move(fused->program));
      }
      auto made = WithRowLayers(*other.program, {});
      if (!made) continue;
      EXPECT_EQ(CountOf(made->program, "permafrost::row_linear"), made->linears);
      EXPECT_EQ(CountOf(made->program, "permafrost::row_norm"), made->norms);
      EXPECT_TRUE(trains || made->norms == 0) << "norms of evaluation";
      linears += made->linears;
      norms += made->norms;
      other.program = std::make_shared<const Program>(std::move(made->program));
      EXPECT_EQ(MakeInterpreter(other).mutated(), MakeInterpreter(plain).mutated()) << "what a step writes to";
      for (const std::string suffix : {"", ".5-7-1", ".6-1-3"}) {
        SCOPED_TRACE(suffix);
        const Tensors tensors = suffix.empty() ? Expected(name) : ReadTensors(Archive(name).replace_extension(suffix));
        ExpectEqual(RunForm(plain, tensors, trains), RunForm(other, tensors, trains));
      }
    }
  }
  EXPECT_GT(linears, 100);
  EXPECT_GT(norms, 40);
}

TEST_F(EdgeRegions, LeaveNoLinearMapNormOrReluOfAnMlpToLibtorch) {
  const LoadedProgram loaded = Load("gin");
  const Form& form = loaded.train();
  EXPECT_GT(CountOf(*form.program, "aten::relu"), 0);
  const auto made = WithRowLayers(*form.program, {});
  ASSERT_TRUE(made);
  for (const char* op : {"aten::linear", "aten::batch_norm", "aten::relu"}) {
    EXPECT_EQ(CountOf(made->program, op), 0) << op;
  }
}

TEST_F(EdgeRegions, PrintsWhatAModuleGathers) {
  const auto fused = WithEdgeRegions(*Load("gine").train().program, /*differentiated=*/true);
  ASSERT_TRUE(fused);
  ASSERT_FALSE(fused->regions.empty());
  EXPECT_EQ(nn::ToString(fused->regions[0].region),
            "0: edge[16] = gather(input 0, index 0)\n"
            "1: edge[16] = gather(input 1, index 1)\n"
            "2: edge[16] = add(1, 0, x 1)\n"
            "3: edge[16] = relu(2)\n"
            "4: target[16] = sum(3)\n"
            "5: shared[1] = shared(input 2)\n"
            "6: target[16] = target(input 3)\n"
            "7: target[16] = mul(5, 6, x 1)\n"
            "8: target[16] = add(4, 7, x 1)\n"
            "output: 8\n");
  EXPECT_THAT(fused->regions[0].sources, testing::Not(testing::IsEmpty()));
}

// Regions take over GINE's (1 + eps) * x_i, which only they read.
TEST_F(EdgeRegions, TakeOverWhatTheyAloneRead) {
  const LoadedProgram loaded = Load("gine");
  Program program = *loaded.train().program;
  ASSERT_GT(CountOf(program, "aten::mul"), 0);
  const auto taken = WithEdgeRegions(program, /*differentiated=*/true);
  ASSERT_TRUE(taken);
  EXPECT_EQ(CountOf(taken->program, "aten::mul"), 0);

  // A node that another node reads stays.
  const auto factor =
      std::ranges::find_if(program.graph.nodes, [](const Node& node) { return OperatorOf(node) == "aten::mul"; });
  program.graph.outputs.push_back(ResultOf(*factor));
  const auto left = WithEdgeRegions(program, /*differentiated=*/true);
  ASSERT_TRUE(left);
  EXPECT_EQ(CountOf(left->program, "aten::mul"), 1);
}

// Computes sigmoid(h * 0.5 + r) * tanh(h) - r, where r is h after a linear map and its transpose.
std::shared_ptr<const Program> GateProgram(bool returns_middle) {
  TypedWriter w;
  const ValueIndex low = w.Linear(w.h, w.weight, kNoValue);
  const ValueIndex high = w.Shape("matmul.default", low, w.SizesOf(w.h), {{"other", Ref{w.weight}}});
  const ValueIndex gate = w.Unary("sigmoid.default", w.Sum(w.Times(w.h, 0.5), high));
  const ValueIndex gated = w.Shape("mul.Tensor", gate, w.SizesOf(w.h), {{"other", Ref{w.Unary("tanh.default", w.h)}}});
  const ValueIndex out = w.Sub(gated, high);
  return w.Return(returns_middle ? std::vector<ValueIndex>{out, gate} : std::vector<ValueIndex>{out});
}

TEST(RowRegions, FuseWhatWorksOnEachRow) {
  for (const bool returns_middle : {false, true}) {
    SCOPED_TRACE(returns_middle);
    const auto program = GateProgram(returns_middle);
    const auto fused = WithEdgeRegions(*program, /*differentiated=*/true);
    ASSERT_TRUE(fused);
    ASSERT_EQ(fused->regions.size(), 1u);
    EXPECT_EQ(CountOf(fused->program, "permafrost::row_region"), 1);
    for (const char* op : {"aten::sigmoid", "aten::tanh", "aten::add", "aten::sub", "aten::mul"})
      EXPECT_EQ(CountOf(fused->program, op), 0) << op;
    ExpectSameResults(program, std::make_shared<const Program>(fused->program), {{7, 19}, {1, 1}, {300, 0}});
  }
}

// Operators before and after a product belong to different regions.
TEST(RowRegions, EndAtProducts) {
  TypedWriter w;
  const auto chain = [&](ValueIndex x) {
    return w.Sub(w.Unary("tanh.default", w.Unary("sigmoid.default", w.Relu(x))), x);
  };
  const ValueIndex first = chain(w.h), low = w.Linear(first, w.weight, kNoValue);
  const ValueIndex high = w.Shape("matmul.default", low, w.SizesOf(w.h), {{"other", Ref{w.weight}}});
  const auto program = w.Return({w.Sum(chain(high), first)});
  const auto fused = WithEdgeRegions(*program, /*differentiated=*/true);
  ASSERT_TRUE(fused);
  EXPECT_EQ(fused->regions.size(), 2u);
  ExpectSameResults(program, std::make_shared<const Program>(fused->program), {{7, 19}, {1, 1}});
}

TEST(RowRegions, LeaveFewSteps) {
  TypedWriter w;
  EXPECT_FALSE(WithEdgeRegions(*w.Return({w.Relu(w.Sum(w.h, w.h))}), /*differentiated=*/true));
}

// If a mask is read outside its region, that region is not fused. Other regions of the same depth are.
TEST(RowRegions, AreLookedForOneByOne) {
  TypedWriter w;
  const ValueIndex gate = w.Unary("sigmoid.default", w.h);
  const ValueIndex mask = w.Shape("gt.Scalar", w.Unary("tanh.default", w.Neg(w.e)), w.SizesOf(w.e), {{"other", 0.0}});
  const ValueIndex copy = w.Shape("_to_copy.default", mask, w.SizesOf(w.e), {});
  const ValueIndex out = w.Sub(w.Unary("tanh.default", w.Neg(gate)), gate);
  Program program = *w.Return({copy, out});
  program.graph.values[mask].type->dtype = DType::kBool;
  const auto fused = WithEdgeRegions(program, /*differentiated=*/true);
  ASSERT_TRUE(fused);
  EXPECT_EQ(fused->regions.size(), 1u);
}

// Regions read slices of wider rows, such as the gates of a cell.
TEST(RowRegions, ReadRowsThatLieApart) {
  TypedWriter w;
  const auto half = [&](int64_t from) {
    return w.Shape("slice.Tensor", w.h, {TypedWriter::Nodes(), TypedWriter::Of(8)},
                   {{"dim", int64_t{1}}, {"start", from}, {"end", from + 8}});
  };
  const ValueIndex a = half(0), b = half(8);
  const ValueIndex gate = w.Unary("sigmoid.default", w.Sum(a, b));
  const auto program = w.Return({w.Sub(w.Shape("mul.Tensor", gate, w.SizesOf(a), {{"other", Ref{a}}}), b)});
  const auto fused = WithEdgeRegions(*program, /*differentiated=*/true);
  ASSERT_TRUE(fused);
  EXPECT_EQ(CountOf(fused->program, "permafrost::row_region"), 1);
  ExpectSameResults(program, std::make_shared<const Program>(fused->program), {{7, 19}, {1, 1}});
}

// A file may claim any type for values between its nodes. Then only that program fails.
TEST_F(EdgeRegions, TypesThatAreNotTrueAreErrors) {
  for (const std::string name : {"gine", "gatv2", "pna", "gen_softmax"}) {
    SCOPED_TRACE(name);
    Form form = WithoutLoops(Load(name).train());
    for (const int64_t claimed : {1, 8, 17, 64}) {
      Program program = *form.program;
      for (const Node& node : program.graph.nodes) {
        for (const Output& output : node.outputs) {
          for (const ValueIndex value : output.values) {
            if (value == kNoValue || !program.graph.values[value].type) continue;
            for (Size& size : program.graph.values[value].type->sizes)
              if (size.expression.empty() && size.number == 16) size.number = claimed;
          }
        }
      }
      const auto fused = WithEdgeRegions(program, /*differentiated=*/true);
      if (!fused) continue;
      Form lying{.program = std::make_shared<const Program>(fused->program), .state = form.state};
      Interpreter interpreter = MakeInterpreter(lying);
      try {
        const Tensor output = interpreter.Run(InputsOf(*lying.program, Expected(name)))[0].toTensor();
        torch::autograd::backward({output.square().sum()}, {});
      } catch (const c10::Error&) {
        continue;
      }
    }
  }
}

// A file may pass numbers, or no argument, where operators take tensors.
TEST(RewritingsOfFiles, SkipNodesWithoutTensors) {
  const auto run = [](const std::shared_ptr<const Program>& program) {
    EXPECT_FALSE(WithEdgeRegions(*program, /*differentiated=*/true));
    EXPECT_FALSE(WithNodeLinears(*program));
  };
  {
    Builder builder;
    builder.Input("x");
    run(builder.Return(builder.Call("sum.dim_IntList", {{"self", 3.0}, {"dim", IntsOf({1})}})));
  }
  for (const Argument& index : {Argument(int64_t{3}), Argument(None{})}) {
    Builder builder;
    const ValueIndex x = builder.Input("x");
    const ValueIndex zeros = builder.Call("new_zeros.default", {{"self", Ref{x}}, {"size", IntsOf({4, 8})}});
    run(builder.Return(builder.Call("scatter_add.default",
                                    {{"self", Ref{zeros}}, {"dim", int64_t{0}}, {"index", index}, {"src", Ref{x}}})));
  }
  Builder builder;
  builder.Input("x");
  run(builder.Return(builder.Call("cat.default", {{"tensors", Refs{{kNoValue}}}, {"dim", int64_t{0}}})));
}

// The search for regions takes bounded time, whatever a file contains.
TEST(RewritingsOfFiles, AreQuickForLongChains) {
  Program program;
  const auto value = [&](std::vector<Size> sizes, DType dtype = DType::kFloat32) {
    program.graph.values.push_back({.name = "v" + std::to_string(program.graph.values.size()),
                                    .kind = ValueKind::kTensor,
                                    .type = TensorType{.dtype = dtype, .sizes = std::move(sizes)}});
    return static_cast<ValueIndex>(program.graph.values.size()) - 1;
  };
  const auto call = [&](const std::string& op, std::vector<NamedArgument> inputs, ValueIndex result) {
    program.graph.nodes.push_back({.name = "n",
                                   .target = "torch.ops.aten." + op,
                                   .inputs = std::move(inputs),
                                   .outputs = {{.values = {result}}}});
    return result;
  };
  const Size edges{.expression = "E"}, nodes{.expression = "N"}, width{.number = 8};
  const ValueIndex x = value({nodes, width}), index = value({edges}, DType::kInt64);
  ValueIndex message = call("index_select.default", {{"self", Ref{x}}, {"dim", int64_t{0}}, {"index", Ref{index}}},
                            value({edges, width}));
  std::vector<ValueIndex> sums;
  for (int i = 0; i < 4000; ++i) {
    const ValueIndex factor = value({});
    program.graph.inputs.push_back(factor);
    message = call("mul.Tensor", {{"self", Ref{message}}, {"other", Ref{factor}}}, value({edges, width}));
    if (i % 4 != 0) continue;
    const ValueIndex zeros = call("zeros.default", {{"size", IntsOf({4, 8})}}, value({nodes, width}));
    sums.push_back(call("index_add.default",
                        {{"self", Ref{zeros}}, {"dim", int64_t{0}}, {"index", Ref{index}}, {"source", Ref{message}}},
                        value({nodes, width})));
  }
  program.graph.outputs = sums;
  EXPECT_FALSE(WithEdgeRegions(program, /*differentiated=*/true));
}

// Each of these masks prevents a region, but only after all nodes were examined.
TEST(RewritingsOfFiles, AreQuickForManyMasks) {
  TypedWriter w;
  ValueIndex x = w.h;
  std::vector<ValueIndex> masks;
  for (int i = 0; i < 3000; ++i) {
    masks.push_back(w.Shape("gt.Scalar", w.Relu(x), w.SizesOf(w.h), {{"other", 0.0}}));
    x = w.Shape("_to_copy.default", masks.back(), w.SizesOf(w.h), {});
  }
  Program program = *w.Return({x});
  for (const ValueIndex mask : masks) program.graph.values[mask].type->dtype = DType::kBool;
  EXPECT_FALSE(WithEdgeRegions(program, /*differentiated=*/true));
}

TEST(OwnOperators, AreRefusedInFiles) {
  EXPECT_FALSE(FindOperator("torch.ops.permafrost.edge_region.default"));
  EXPECT_FALSE(FindOperator("torch.ops.permafrost.segments_of.default"));
  EXPECT_FALSE(FindOperator("torch.ops.permafrost.row_region.default"));
}

}  // namespace
}  // namespace permafrost::program
