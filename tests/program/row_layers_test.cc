// Programs whose linear maps and batch norms run as operators of nn. Results are equal up to rounding. A ReLU is
// merged into an operator if it alone reads the operator's output.
#include "program/rewritings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/ops/linear.h"
#include "nn/ops/rows_by_index.h"
#include "program/interpreter.h"
#include "program/operators.h"
#include "program/rewritten.h"
#include "program/typed_writer.h"

namespace permafrost::program {
namespace {

using at::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;

// The linker leaves out operators that nothing calls.
[[maybe_unused]] const auto kRowLinear = &nn::RowLinear;
[[maybe_unused]] const auto kRowEmbedding = &nn::RowEmbedding;

// Returns the calls of nn's operators in order, as "linear", "linear relu", "norm" or "norm relu".
std::vector<std::string> RowLayersOf(const Program& program) {
  std::vector<std::string> found;
  for (const Node& node : program.graph.nodes) {
    const std::string op = OperatorOf(node);
    if (op != "permafrost::row_linear" && op != "permafrost::row_norm") continue;
    const Argument* relu = ArgumentOf(node, "relu");
    found.push_back((op == "permafrost::row_linear" ? "linear" : "norm") +
                    std::string(relu != nullptr && std::get<bool>(*relu) ? " relu" : ""));
  }
  return found;
}

// The arguments of batch norm except its input.
struct NormArguments {
  explicit NormArguments(TypedWriter& w) {
    // Programs may not write to the inputs of a step, so the statistics are copies.
    const auto own = [&] { return w.Unary("clone.default", w.Unary("detach.default", w.Vector(5))); };
    inputs = {{"weight", Ref{w.Vector(5)}},
              {"bias", Ref{w.Vector(5)}},
              {"running_mean", Ref{own()}},
              {"running_var", Ref{own()}},
              {"training", true},
              {"momentum", 0.2},
              {"eps", 1e-3},
              {"cudnn_enabled", false}};
  }
  // Returns the argument of this name.
  Argument& at(const std::string& name) { return std::ranges::find(inputs, name, &NamedArgument::name)->value; }
  ValueIndex mean() { return std::get<Ref>(at("running_mean")).value; }
  ValueIndex var() { return std::get<Ref>(at("running_var")).value; }
  std::vector<NamedArgument> inputs;
};
ValueIndex Norm(TypedWriter& w, ValueIndex rows, const NormArguments& arguments) {
  return w.Shape("batch_norm.default", rows, w.SizesOf(rows), arguments.inputs, "input");
}

// Rewrites the program, compares results and gradients with the original's, and returns the rewritten program.
Program ExpectRowLayers(const std::shared_ptr<const Program>& program, const std::vector<std::string>& layers) {
  const auto made = WithRowLayers(*program, {});
  if (!made) {
    ADD_FAILURE() << "nothing was rewritten";
    return *program;
  }
  EXPECT_EQ(RowLayersOf(made->program), layers);
  EXPECT_EQ(made->linears + made->norms, std::ssize(layers));
  ExpectSameResults(program, std::make_shared<const Program>(made->program), {{7, 19}, {4, 1}, {3, 0}});
  EXPECT_FALSE(WithRowLayers(made->program, {})) << "nothing is left";
  return made->program;
}

TEST(WithRowLayers, RewritesLinearMaps) {
  for (const bool bias : {false, true}) {
    for (const char* op : {"", "relu.default", "relu_.default"}) {
      SCOPED_TRACE(testing::Message() << (bias ? "bias, " : "no bias, ") << op);
      TypedWriter w;
      ValueIndex y = w.Linear(w.h, w.weight, bias ? w.bias : kNoValue);
      const bool relu = std::string(op) != "";
      if (relu) y = w.Unary(op, y);
      const Program program = ExpectRowLayers(w.Return({w.Times(y, 2)}), {relu ? "linear relu" : "linear"});
      EXPECT_EQ(Count(program, "linear.default") + Count(program, op), 0);
    }
  }
}

TEST(WithRowLayers, RewritesLinearMapsOfOtherDimensions) {
  TypedWriter w;
  const ValueIndex cube = w.Shape(
      "unsqueeze.default", w.h, {TypedWriter::Of(1), TypedWriter::Nodes(), TypedWriter::Of(16)}, {{"dim", int64_t{0}}});
  const ValueIndex row =
      w.Shape("select.int", w.table, {TypedWriter::Of(16)}, {{"dim", int64_t{0}}, {"index", int64_t{1}}});
  ExpectRowLayers(w.Return({w.Relu(w.Linear(cube, w.weight, w.bias)), w.Linear(row, w.weight, w.bias)}),
                  {"linear relu", "linear"});
}

TEST(WithRowLayers, RewritesBatchNormsWithTheirRunningStatistics) {
  for (const char* op : {"", "relu.default", "relu_.default"}) {
    SCOPED_TRACE(op);
    TypedWriter w;
    NormArguments arguments(w);
    ValueIndex y = Norm(w, w.Linear(w.h, w.weight, w.bias), arguments);
    const bool relu = std::string(op) != "";
    if (relu) y = w.Unary(op, y);
    const Program program =
        ExpectRowLayers(w.Return({y, arguments.mean(), arguments.var()}), {"linear", relu ? "norm relu" : "norm"});
    EXPECT_EQ(Count(program, "batch_norm.default") + Count(program, op), 0);
  }
}

TEST(WithRowLayers, RewritesEmbeddings) {
  TypedWriter w;
  const auto program =
      w.Return({w.Embedding(w.table, w.kinds), w.Embedding(w.table, w.kinds, {{"padding_idx", int64_t{-1}}})});
  const auto made = WithRowLayers(*program, {});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->embeddings, 2);
  EXPECT_EQ(Count(made->program, "embedding.default"), 0);
  ExpectSameResults(program, std::make_shared<const Program>(made->program), {{7, 19}, {4, 1}, {3, 0}});
}

TEST(WithRowLayers, KeepsEmbeddingsWithAnotherGradient) {
  const std::vector<NamedArgument> kOthers[] = {
      {{"padding_idx", int64_t{1}}}, {{"scale_grad_by_freq", true}}, {{"sparse", true}}};
  for (const std::vector<NamedArgument>& other : kOthers) {
    TypedWriter w;
    EXPECT_FALSE(WithRowLayers(*w.Return({w.Embedding(w.table, w.kinds, other)}), {})) << other[0].name;
  }
}

TEST(WithRowLayers, CountsWhatItRewrote) {
  TypedWriter w;
  const ValueIndex y = w.Linear(w.h, w.weight, w.bias);
  const auto made = WithRowLayers(*w.Return({Norm(w, y, NormArguments(w)), w.Linear(w.h, w.weight, w.bias)}), {});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->linears, 2);
  EXPECT_EQ(made->norms, 1);
}

TEST(WithRowLayers, KeepsAReluThatIsNotTheOnlyUse) {
  const struct {
    const char* why;
    std::vector<ValueIndex> (*outputs)(TypedWriter& w, ValueIndex y);
    std::vector<std::string> layers;
    int64_t relus;
  } kCases[] = {
      {"the map is an output too",
       [](TypedWriter& w, ValueIndex y) {
         return std::vector{w.Relu(y), y};
       },
       {"linear"},
       1},
      {"the map is used before",
       [](TypedWriter& w, ValueIndex y) {
         const ValueIndex twice = w.Times(y, 2);
         return std::vector{w.Sum(twice, w.Relu(y))};
       },
       {"linear"},
       1},
      {"the map is used after",
       [](TypedWriter& w, ValueIndex y) { return std::vector{w.Sum(w.Relu(y), y)}; },
       {"linear"},
       1},
      {"two ReLUs use it",
       [](TypedWriter& w, ValueIndex y) {
         return std::vector{w.Relu(y), w.Relu(y)};
       },
       {"linear"},
       2},
      {"another operator uses it",
       [](TypedWriter& w, ValueIndex y) { return std::vector{w.Relu(w.Neg(y))}; },
       {"linear"},
       1},
      {"the second of two ReLUs stays",
       [](TypedWriter& w, ValueIndex y) { return std::vector{w.Relu(w.Relu(y))}; },
       {"linear relu"},
       1},
      {"what ReLU returns is used twice",
       [](TypedWriter& w, ValueIndex y) {
         const ValueIndex relu = w.Relu(y);
         return std::vector{relu, w.Times(relu, 3)};
       },
       {"linear relu"},
       0},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    for (const bool norm : {false, true}) {
      TypedWriter w;
      ValueIndex y = w.Linear(w.h, w.weight, w.bias);
      if (norm) y = Norm(w, y, NormArguments(w));
      std::vector<std::string> layers = c.layers;
      if (norm) layers = {"linear", c.layers[0] == "linear" ? "norm" : "norm relu"};
      EXPECT_EQ(Count(ExpectRowLayers(w.Return(c.outputs(w, y)), layers), "relu.default"), c.relus);
    }
  }
}

// `relu_` overwrites a value that another node reads afterwards.
TEST(WithRowLayers, KeepsAReluInPlaceWhoseInputIsUsedAfterwards) {
  TypedWriter w;
  const ValueIndex y = w.Linear(w.h, w.weight, w.bias);
  const ValueIndex written = w.Unary("relu_.default", y);
  ExpectRowLayers(w.Return({w.Sum(written, w.Times(y, 2))}), {"linear"});
}

TEST(WithRowLayers, KeepsAReluOfWhatABufferBecomes) {
  TypedWriter w;
  const ValueIndex y = w.Linear(w.h, w.weight, w.bias);
  Program program = *w.Return({w.Relu(y)});
  program.updates.push_back({.value = y, .state = 0});
  const auto made = WithRowLayers(program, {});
  ASSERT_TRUE(made);
  EXPECT_THAT(RowLayersOf(made->program), ElementsAre("linear"));
}

TEST(WithRowLayers, KeepsLinearMapsOfOtherTypes) {
  TypedWriter w;
  const ValueIndex y = w.Linear(w.h, w.weight, w.bias);
  const Program program = *w.Return({y});
  const struct {
    const char* why;
    void (*change)(std::optional<TensorType>& type);
  } kTypes[] = {
      {"unknown", [](std::optional<TensorType>& type) { type.reset(); }},
      {"bfloat16", [](std::optional<TensorType>& type) { type->dtype = DType::kBfloat16; }},
      {"float16", [](std::optional<TensorType>& type) { type->dtype = DType::kFloat16; }},
      {"another float", [](std::optional<TensorType>& type) { type->dtype = DType::kFloat32; }},
      {"int64", [](std::optional<TensorType>& type) { type->dtype = DType::kInt64; }},
      {"three dimensions", [](std::optional<TensorType>& type) { type->sizes.resize(3); }},
      {"no dimension", [](std::optional<TensorType>& type) { type->sizes.clear(); }},
  };
  for (const auto& c : kTypes) {
    for (const ValueIndex value : {w.h, w.weight, w.bias}) {
      if (value == w.h && std::string(c.why) == "three dimensions") continue;
      Program changed = program;
      c.change(changed.graph.values[value].type);
      EXPECT_FALSE(WithRowLayers(changed, {})) << c.why << ": " << program.graph.values[value].name;
    }
  }
  Program all = program;
  for (const ValueIndex value : {w.h, w.weight, w.bias, y}) all.graph.values[value].type->dtype = DType::kBfloat16;
  EXPECT_FALSE(WithRowLayers(all, {}));
  for (const ValueIndex value : {w.h, w.weight, w.bias, y}) all.graph.values[value].type->dtype = DType::kFloat32;
  EXPECT_TRUE(WithRowLayers(all, {}));
}

TEST(WithRowLayers, KeepsLinearMapsWhoseBiasIsOneNumber) {
  TypedWriter w;
  EXPECT_FALSE(WithRowLayers(*w.Return({w.Linear(w.h, w.weight, w.Vector(1))}), {}));
}

TEST(WithRowLayers, KeepsOtherNorms) {
  const struct {
    const char* why;
    void (*change)(NormArguments& arguments);
  } kCases[] = {
      {"no weight", [](NormArguments& a) { a.at("weight") = None(); }},
      {"no bias", [](NormArguments& a) { a.at("bias") = None(); }},
      {"no running mean", [](NormArguments& a) { a.at("running_mean") = None(); }},
      {"no running variance", [](NormArguments& a) { a.at("running_var") = None(); }},
      {"evaluation", [](NormArguments& a) { a.at("training") = false; }},
      {"a flag that is no flag", [](NormArguments& a) { a.at("training") = int64_t{1}; }},
      {"a momentum that is no double", [](NormArguments& a) { a.at("momentum") = int64_t{1}; }},
      {"an argument left out",
       [](NormArguments& a) { std::erase_if(a.inputs, [](auto& i) { return i.name == "eps"; }); }},
  };
  for (const auto& c : kCases) {
    TypedWriter w;
    NormArguments arguments(w);
    c.change(arguments);
    EXPECT_FALSE(WithRowLayers(*w.Return({Norm(w, w.Table(4, 5), arguments)}), {})) << c.why;
  }
  TypedWriter w;
  NormArguments arguments(w);
  const ValueIndex table = w.Table(4, 5);
  const Program program = *w.Return({w.Relu(Norm(w, table, arguments))});
  ASSERT_TRUE(WithRowLayers(program, {}));
  EXPECT_FALSE(WithRowLayers(program, {.norms = false})) << "norms of padded batches";
  const auto kept = [&](ValueIndex value, const auto& change) {
    Program changed = program;
    change(changed.graph.values[value].type);
    return !WithRowLayers(changed, {});
  };
  for (const ValueIndex value : {table, std::get<Ref>(arguments.at("weight")).value, arguments.mean()}) {
    EXPECT_TRUE(kept(value, [](auto& type) { type.reset(); })) << "unknown type of " << value;
    EXPECT_TRUE(kept(value, [](auto& type) { type->dtype = DType::kBfloat16; })) << "bfloat16 of " << value;
    EXPECT_TRUE(kept(value, [](auto& type) { type->dtype = DType::kInt64; })) << "int64 of " << value;
    EXPECT_TRUE(kept(value, [](auto& type) { type->dtype = DType::kFloat32; })) << "mixed types by " << value;
    EXPECT_TRUE(kept(value, [](auto& type) { type->sizes.resize(3); })) << "three dimensions of " << value;
  }
}

// In padded batches, norms must see the real rows only. Linear maps need no such care.
TEST(WithRowLayers, RewritesLinearMapsWithoutNorms) {
  TypedWriter w;
  const auto program = w.Return({w.Relu(Norm(w, w.Linear(w.h, w.weight, w.bias), NormArguments(w)))});
  const auto made = WithRowLayers(*program, {.norms = false});
  ASSERT_TRUE(made);
  EXPECT_THAT(RowLayersOf(made->program), ElementsAre("linear"));
  EXPECT_EQ(made->norms, 0);
  EXPECT_EQ(Count(made->program, "batch_norm.default"), 1);
  ExpectSameResults(program, std::make_shared<const Program>(made->program), {{7, 19}, {3, 0}});
}

TEST(WithRowLayers, ReturnsNothingWithoutEither) {
  TypedWriter w;
  EXPECT_FALSE(WithRowLayers(*w.Return({w.Relu(w.h)}), {}));
  EXPECT_FALSE(WithRowLayers(Program(), {}));
}

TEST(WithRowLayers, RefusesOneRowAsPyTorchsPython) {
  TypedWriter w;
  const auto program = w.Return({Norm(w, w.Linear(w.h, w.weight, w.bias), NormArguments(w))});
  const auto made = WithRowLayers(*program, {});
  ASSERT_TRUE(made);
  for (const auto& each : {program, std::make_shared<const Program>(made->program)}) {
    try {
      RunWriter(each, 1, 1);
      ADD_FAILURE();
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("Expected more than 1 value per channel when training"));
    }
  }
}

// A file may describe a product that no machine has memory for. It must be refused before anything is allocated.
TEST(WithRowLayers, KeepsTheBoundOnATensorsBytes) {
  TypedWriter w;
  const auto program = w.Return({w.Linear(w.Table(1 << 22, 1), w.Table(1 << 22, 1), kNoValue)});
  const auto made = WithRowLayers(*program, {});
  ASSERT_TRUE(made);
  for (const auto& each : {program, std::make_shared<const Program>(made->program)}) {
    auto interpreter = Interpreter::Make(each, {}, {.max_tensor_bytes = int64_t{1} << 40});
    ASSERT_TRUE(interpreter.ok());
    const std::vector<Tensor> batch = TypedWriter::Batch(*each, 7, 0);
    try {
      interpreter->Run({batch.begin(), batch.end()});
      ADD_FAILURE();
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("bytes is more than the 1099511627776 that a tensor may"));
    }
  }
}

TEST(RowLayers, AreRefusedInFiles) {
  EXPECT_FALSE(FindOperator("torch.ops.permafrost.row_linear.default"));
  EXPECT_FALSE(FindOperator("torch.ops.permafrost.row_norm.default"));
}

}  // namespace
}  // namespace permafrost::program
