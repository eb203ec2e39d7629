// Arguments and sizes in a file that must neither end the process nor keep it busy.
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "program/code.h"
#include "program/interpreter.h"
#include "program/synthetic.h"

namespace permafrost::program {
namespace {

using testing::HasSubstr;
using Inputs = std::vector<c10::IValue>;

// Returns the error of Make or Run, or "" if both succeed.
std::string Said(const std::shared_ptr<const Program>& program, const Inputs& inputs,
                 const InterpreterOptions& options = {}) {
  auto made = Interpreter::Make(program, {}, options);
  if (!made.ok()) return std::string(made.status().message());
  try {
    made->Run(inputs);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

at::Tensor Longs(const std::vector<int64_t>& numbers) { return at::tensor(numbers, at::kLong); }

// Same as Said, for a program of one operator. Its first arguments are the program's inputs "a" and "b".
std::string SaidOf(const std::string& target, std::vector<NamedArgument> arguments,
                   const std::vector<at::Tensor>& inputs, const InterpreterOptions& options = {}) {
  Builder builder;
  Inputs passed;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = inputs[i].scalar_type() == at::kLong ? DType::kInt64 : DType::kFloat32;
    arguments[i].value = Ref{builder.Input(std::string(1, static_cast<char>('a' + i)), dtype)};
    passed.emplace_back(inputs[i]);
  }
  const ValueIndex value = builder.Call(target, std::move(arguments));
  return Said(builder.Return(value), passed, options);
}

TEST(Safety, IntegerDivisionsDoNotTrap) {
  const at::Tensor least = Longs({INT64_MIN}), minus_one = Longs({-1});
  const std::string trunc = "trunc", floor = "floor";
  EXPECT_THAT(SaidOf("div.Tensor_mode", {{"self", {}}, {"other", {}}, {"rounding_mode", trunc}}, {least, minus_one}),
              HasSubstr("use \"floor\""));
  EXPECT_THAT(SaidOf("div.Scalar_mode", {{"self", {}}, {"other", int64_t{-1}}, {"rounding_mode", trunc}}, {least}),
              HasSubstr("use \"floor\""));
  EXPECT_THAT(SaidOf("div.Tensor_mode", {{"self", {}}, {"other", int64_t{-1}}, {"rounding_mode", trunc}}, {least}),
              HasSubstr("use \"floor\""));
  EXPECT_EQ(SaidOf("div.Tensor_mode", {{"self", {}}, {"other", int64_t{2}}, {"rounding_mode", trunc}}, {least}), "");
  EXPECT_EQ(SaidOf("div.Tensor_mode", {{"self", {}}, {"other", {}}, {"rounding_mode", floor}}, {least, minus_one}), "");
  for (const char* target : {"floor_divide.default", "remainder.Tensor", "fmod.Tensor"})
    EXPECT_EQ(SaidOf(target, {{"self", {}}, {"other", {}}}, {least, minus_one}), "") << target;
}

TEST(Safety, RepeatsAreAddedUpWithCare) {
  constexpr int64_t kBig = int64_t{1} << 62;
  EXPECT_THAT(SaidOf("repeat_interleave.Tensor", {{"repeats", {}}}, {Longs({kBig, kBig, kBig, kBig, 1})}),
              HasSubstr("beyond 64 bits"));
  EXPECT_THAT(SaidOf("repeat_interleave.self_Tensor", {{"self", {}}, {"repeats", {}}},
                     {at::ones({3}), Longs({INT64_MAX, INT64_MAX, 3})}),
              HasSubstr("beyond 64 bits"));
  EXPECT_THAT(SaidOf("repeat_interleave.Tensor", {{"repeats", {}}}, {Longs({-1, 5})}), HasSubstr("-1 is negative"));
  EXPECT_EQ(SaidOf("repeat_interleave.self_Tensor", {{"self", {}}, {"repeats", {}}}, {at::ones({3}), Longs({2, 0, 1})}),
            "");
}

TEST(Safety, WindowsPaddingAndPiecesHaveBounds) {
  const std::vector<at::Tensor> row = {at::ones({5})};
  Builder pool;
  ValueIndex x = pool.Call("view.default", {{"self", Ref{pool.Input("a")}}, {"size", IntsOf({1, 1, 5})}});
  x = pool.Call("max_pool1d.default", {{"self", Ref{x}},
                                       {"kernel_size", IntsOf({int64_t{1} << 62})},
                                       {"stride", IntsOf({1})},
                                       {"padding", IntsOf({int64_t{1} << 61})}});
  EXPECT_THAT(Said(pool.Return(x), {row[0]}), HasSubstr("kernel_size: 4611686018427387904 is more than 4096"));
  Builder pad;
  x = pad.Call("view.default", {{"self", Ref{pad.Input("a")}}, {"size", IntsOf({1, 1, 5})}});
  x = pad.Call("pad.default", {{"self", Ref{x}}, {"pad", IntsOf({-9, 5})}, {"mode", std::string("circular")}});
  EXPECT_THAT(Said(pad.Return(x), {row[0]}), HasSubstr("pad: -9 is negative"));
  Builder pieces;
  x = pieces.Call("chunk.default", {{"self", Ref{pieces.Input("a")}}, {"chunks", int64_t{1} << 40}});
  pieces.ReturnTwo();
  EXPECT_THAT(Said(pieces.Return(x), {at::ones({0})}), HasSubstr("pieces are more than the 100000"));
}

TEST(Safety, NumbersStandForNoType) {
  EXPECT_THAT(SaidOf("to.dtype", {{"self", {}}, {"dtype", int64_t{99}}}, {at::ones({1})}),
              HasSubstr("dtype: is no ScalarType"));
  EXPECT_THAT(SaidOf("zeros.default", {{"size", IntsOf({1})}, {"layout", int64_t{1}}}, {}),
              HasSubstr("layout: is no Layout"));
  EXPECT_EQ(SaidOf("to.dtype", {{"self", {}}, {"dtype", DType::kInt64}}, {at::ones({1})}), "");
  EXPECT_THAT(SaidOf("gather.default", {{"self", {}}, {"index", {}}, {"dim", int64_t{0}}, {"sparse_grad", true}},
                     {at::ones({1}), Longs({0})}),
              HasSubstr("sparse_grad: only false is accepted"));
}

TEST(Safety, OperatorsThatNoProgramNeedsAreRefused) {
  for (const char* target : {"_weight_norm.default", "combinations.default", "view.dtype"})
    EXPECT_THAT(SaidOf(target, {{"self", {}}}, {at::ones({1})}), HasSubstr("no program may use this operator"))
        << target;
}

TEST(Safety, TensorsHaveNoMoreBytesThanTheirLimit) {
  InterpreterOptions options;
  options.max_tensor_bytes = 4000;
  const at::Tensor row = at::ones({100}), labels = Longs({5});
  const int64_t big = int64_t{1} << 40;
  const struct {
    const char* target;
    std::vector<NamedArgument> arguments;
    std::vector<at::Tensor> inputs;
  } kRefused[] = {
      {"zeros.default", {{"size", IntsOf({1001})}, {"dtype", DType::kFloat32}}, {}},
      {"zeros.default", {{"size", IntsOf({1'000'000'000'000})}}, {}},
      {"empty.memory_format", {{"size", IntsOf({big, big})}}, {}},
      {"new_zeros.default", {{"self", {}}, {"size", IntsOf({big})}}, {row}},
      {"arange.start_step", {{"start", int64_t{0}}, {"end", big}, {"step", int64_t{2}}}, {}},
      {"linspace.default", {{"start", 0.0}, {"end", 1.0}, {"steps", big}}, {}},
      {"eye.default", {{"n", int64_t{1} << 31}}, {}},
      {"tril_indices.default", {{"row", big}, {"col", big}}, {}},
      {"randperm.default", {{"n", big}}, {}},
      {"repeat.default", {{"self", {}}, {"repeats", IntsOf({11})}}, {row}},
      {"tile.default", {{"self", {}}, {"dims", IntsOf({big})}}, {row}},
      {"expand.default", {{"self", {}}, {"size", IntsOf({big, 100})}}, {row}},
      {"repeat_interleave.self_int", {{"self", {}}, {"repeats", big}}, {row}},
      {"repeat_interleave.self_Tensor", {{"self", {}}, {"repeats", {}}}, {row, Longs({big})}},
      {"one_hot.default", {{"self", {}}, {"num_classes", big}}, {labels}},
      {"one_hot.default", {{"self", {}}}, {Longs({big})}},
      {"bincount.default", {{"self", {}}}, {Longs({big})}},
      {"diag_embed.default", {{"self", {}}}, {row}},
      {"constant_pad_nd.default", {{"self", {}}, {"pad", IntsOf({big, 0})}}, {row}},
      {"outer.default", {{"self", {}}, {"vec2", {}}}, {row, row}},
  };
  for (const auto& c : kRefused) {
    const std::string said = SaidOf(c.target, c.arguments, c.inputs, options);
    EXPECT_THAT(said, HasSubstr("bytes is more than the 4000 that a tensor may have")) << c.target;
    EXPECT_THAT(said, HasSubstr("node node (torch.ops.aten.")) << c.target;
  }
  EXPECT_EQ(SaidOf("zeros.default", {{"size", IntsOf({1000})}, {"dtype", DType::kFloat32}}, {}, options), "");
  EXPECT_EQ(SaidOf("repeat.default", {{"self", {}}, {"repeats", IntsOf({10})}}, {row}, options), "");
  EXPECT_EQ(SaidOf("one_hot.default", {{"self", {}}}, {labels}, options), "");

  // Rows and columns fit by themselves, but their sum does not.
  Builder builder;
  const ValueIndex a = builder.Input("a");
  const ValueIndex column = builder.Call("unsqueeze.default", {{"self", Ref{a}}, {"dim", int64_t{1}}});
  const ValueIndex sum = builder.Call("add.Tensor", {{"self", Ref{column}}, {"other", Ref{a}}});
  const auto program = builder.Return(sum);
  EXPECT_THAT(Said(program, {row}, options), HasSubstr("add.Tensor"));
  EXPECT_EQ(Said(program, {at::ones({31})}, options), "");
}

TEST(Safety, BatchStatisticsOfOneRowAreRefusedAsPythonRefusesThem) {
  const auto program = [](bool training) {
    Builder builder;
    const ValueIndex x = builder.Call("view.default", {{"self", Ref{builder.Input("a")}}, {"size", IntsOf({-1, 2})}});
    return builder.Return(builder.Call("batch_norm.default", {{"input", Ref{x}},
                                                              {"weight", None{}},
                                                              {"bias", None{}},
                                                              {"running_mean", None{}},
                                                              {"running_var", None{}},
                                                              {"training", training},
                                                              {"momentum", 0.1},
                                                              {"eps", 1e-5},
                                                              {"cudnn_enabled", false}}));
  };
  EXPECT_THAT(Said(program(true), {at::ones({2})}), HasSubstr("Expected more than 1 value per channel"));
  EXPECT_EQ(Said(program(true), {at::ones({4})}), "");
}

// Some operators return their argument itself. Writes to their output must be seen as writes to the argument.
TEST(Safety, WritesAreSeenThroughOperatorsThatReturnTheirArgument) {
  const struct {
    const char* target;
    std::vector<NamedArgument> arguments;
    bool seen;
  } kCases[] = {
      {"dropout.default", {{"input", {}}, {"p", 0.5}, {"train", false}}, true},
      {"dropout.default", {{"input", {}}, {"p", 0.0}, {"train", true}}, true},
      {"dropout.default", {{"input", {}}, {"p", int64_t{0}}, {"train", true}}, true},
      {"dropout.default", {{"input", {}}, {"p", 0.5}, {"train", true}}, false},
      {"feature_dropout.default", {{"input", {}}, {"p", 0.5}, {"train", false}}, true},
      {"type_as.default", {{"self", {}}, {"other", {}}}, true},
      {"atleast_1d.default", {{"self", {}}}, true},
      {"lift.default", {{"self", {}}}, true},
      {"_unsafe_view.default", {{"self", {}}, {"size", IntsOf({-1})}}, true},
      {"contiguous.default", {{"self", {}}}, true},
      {"to.dtype", {{"self", {}}, {"dtype", DType::kFloat32}}, true},
      {"reshape.default", {{"self", {}}, {"shape", IntsOf({-1})}}, true},
      {"clone.default", {{"self", {}}}, false},
      {"neg.default", {{"self", {}}}, false},
  };
  for (const auto& c : kCases) {
    Builder builder;
    const ValueIndex input = builder.Input("a");
    std::vector<NamedArgument> arguments = c.arguments;
    for (NamedArgument& argument : arguments)
      if (std::holds_alternative<None>(argument.value)) argument.value = Ref{input};
    const ValueIndex same = builder.Call(c.target, arguments);
    const auto program = builder.Return(builder.Call("add_.Scalar", {{"self", Ref{same}}, {"other", int64_t{1}}}));
    const auto made = Interpreter::Make(program, {});
    EXPECT_EQ(made.ok(), !c.seen) << c.target;
    if (c.seen) {
      EXPECT_THAT(std::string(made.status().message()), HasSubstr("input \"a\": the program writes to it")) << c.target;
      continue;
    }
    const at::Tensor passed = at::ones({3});
    EXPECT_EQ(Said(program, {passed}), "");
    EXPECT_TRUE(at::equal(passed, at::ones({3}))) << c.target;
  }
}

TEST(Safety, BuffersOverTheSameBytesAreWrittenTogether) {
  Builder builder;
  const ValueIndex first = builder.Buffer("first");
  builder.Buffer("second");
  builder.Buffer("third");
  const auto program = builder.Return(builder.Call("add_.Scalar", {{"self", Ref{first}}, {"other", int64_t{1}}}));
  const at::Tensor bytes = at::zeros({4});
  const auto made = Interpreter::Make(program, {bytes.slice(0, 0, 2), bytes.slice(0, 1, 3), at::zeros({2})});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->mutated(), (std::vector<size_t>{0, 1}));
}

// The output of each region may be a view of its own buffer and of all buffers before. The interpreter finds
// the values that are written to by a walk over the nodes. A list for each value would take hours and exhaust memory.
TEST(Safety, TheLargestProgramIsBoundInSeconds) {
  constexpr size_t kRegions = 50'000;  // regions with one node each
  auto region = std::make_shared<Graph>();
  region->values = {{"a", ValueKind::kTensor}, {"b", ValueKind::kTensor}, {"c", ValueKind::kTensor}};
  region->inputs = {0, 1};
  region->nodes.push_back({.name = "sum",
                           .target = "torch.ops.aten.add.Tensor",
                           .inputs = {{"self", Ref{0}}, {"other", Ref{1}}},
                           .outputs = {{.values = {2}}}});
  region->outputs = {2};
  const std::shared_ptr<const Graph> graph = region;
  Builder builder;
  ValueIndex last = builder.Buffer("first");
  for (size_t i = 0; i < kRegions; ++i) {
    const ValueIndex buffer = builder.Buffer("buffer");
    last = builder.Call("torch.ops.higher_order.wrap_with_set_grad_enabled",
                        {{"", false}, {"", graph}, {"", Ref{last}}, {"", Ref{buffer}}});
  }
  const auto program = builder.Return(builder.Call("add_.Scalar", {{"self", Ref{last}}, {"other", int64_t{1}}}));
  std::vector<at::Tensor> state(kRegions + 1);
  for (at::Tensor& tensor : state) tensor = at::zeros({1});
  const auto made = Interpreter::Make(program, state);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->mutated().size(), kRegions + 1);
}

TEST(Interpreter, TellsTheLineOfEachNodeAndThenAnEmptyOne) {
  Builder builder;
  const ValueIndex x = builder.Input("a");
  const ValueIndex y = builder.Call("relu.default", {{"self", Ref{x}}});
  Program program = *builder.Return(builder.Call("neg.default", {{"self", Ref{y}}}));
  program.graph.nodes[0].source = "net.py:1";
  std::vector<std::string> lines;
  InterpreterOptions options;
  options.on_line = [&lines](std::string_view line) { lines.emplace_back(line); };
  EXPECT_EQ(Said(std::make_shared<const Program>(program), {at::ones({3})}, options), "");
  EXPECT_EQ(lines, (std::vector<std::string>{"net.py:1", "", ""}));
}

// The kernels of recurrent layers trust the other arguments about the sizes of weights and states.
TEST(Safety, WeightsOfRecurrentLayersMustFit) {
  const auto said = [](int64_t gates, const at::Tensor& input, const at::Tensor& state, int64_t layers,
                       int64_t width = 3) -> std::string {
    const int64_t rows = gates * width;
    const std::vector<at::Tensor> weights = {at::ones({rows, 2}), at::ones({rows, width}), at::ones({rows}),
                                             at::ones({rows})};
    const auto gru = c10::Dispatcher::singleton().findSchemaOrThrow("aten::gru", "input");
    torch::jit::Stack stack = {input, state, weights, true, layers, 0.0, true, false, false};
    try {
      FindGuard("aten::gru")(gru.schema(), stack);
      gru.callBoxed(stack);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const at::Tensor input = at::ones({4, 5, 2}), state = at::ones({1, 5, 3});
  EXPECT_EQ(said(3, input, state, 1), "");
  EXPECT_THAT(said(4, input, state, 1), HasSubstr("weight 0 is CPUFloatType[12, 2], not CPUFloatType[9, 2]"));
  EXPECT_THAT(said(3, at::ones({4, 5, 7}), state, 1),
              HasSubstr("weight 0 is CPUFloatType[9, 2], not CPUFloatType[9, 7]"));
  EXPECT_THAT(said(3, input, at::ones({1, 4, 3}), 1), HasSubstr("a state is CPUFloatType[1, 4, 3], not"));
  EXPECT_THAT(said(3, input, state, 2), HasSubstr("4 weights and 1 states for 2 layers"));
  EXPECT_THAT(said(3, at::ones({5000, 1, 2}), at::ones({1, 1, 3}), 1), HasSubstr("5000 steps are more than the 4096"));
  EXPECT_THAT(said(3, input, at::ones({1, 5, 0}), 1, /*width=*/0), HasSubstr("without columns"));
  EXPECT_THAT(said(3, input.to(at::kDouble), state, 1), HasSubstr("weight 0 is CPUFloatType[9, 2]"));
}

}  // namespace
}  // namespace permafrost::program
