// Programs rewritten to multiply rows before gathering them. Results are equal up to rounding, and fewer rows are
// multiplied.
#include "program/rewritings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/exported.h"
#include "program/interpreter.h"
#include "program/rewritings.h"
#include "program/rewritten.h"
#include "program/typed_writer.h"

namespace permafrost::program {
namespace {

using at::Tensor;

// Counts the linear maps with one row per edge.
int64_t LinearsOfEdges(const Program& program) {
  return std::ranges::count_if(program.graph.nodes, [&](const Node& node) {
    if (node.target != "torch.ops.aten.linear.default") return false;
    const auto& type = program.graph.values[std::get<Ref>(node.inputs[0].value).value].type;
    if (!type) return true;
    const std::string& rows = type->sizes[0].expression;
    return rows.find(program.symbols.edges) != std::string::npos || rows.find('u') != std::string::npos;
  });
}

TEST(WithNodeLinears, MapsTheTableOfEachKindOfGather) {
  const struct {
    const char* op;
    ValueIndex (*gather)(TypedWriter& w);
  } kCases[] = {
      {"index_select.default", [](TypedWriter& w) { return w.Select(w.h, w.sources, -2); }},
      {"index.Tensor", [](TypedWriter& w) { return w.Index(w.h, w.sources); }},
      {"embedding.default", [](TypedWriter& w) { return w.Embedding(w.table, w.kinds); }},
      {"embedding.default", [](TypedWriter& w) { return w.Embedding(w.h, w.sources); }},
      {"index_select.default", [](TypedWriter& w) { return w.Select(w.table, w.kinds, 0); }},
  };
  for (const auto& c : kCases) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.op << (bias ? " with a bias" : ""));
      TypedWriter w;
      const Program program =
          ExpectRewritten(WithNodeLinears, w.Return({w.Linear(c.gather(w), w.weight, bias ? w.bias : kNoValue)}));
      EXPECT_EQ(LinearsOfEdges(program), 0);
      EXPECT_EQ(Count(program, c.op), 1);
      EXPECT_EQ(Count(program, "linear.default"), 1);
    }
  }
}

TEST(WithNodeLinears, MapsColumnsOneByOneAndAddsTheBiasOnce) {
  TypedWriter w;
  const ValueIndex parts =
      w.Cat({w.Select(w.h, w.targets), w.e, w.Select(w.h, w.sources), w.Embedding(w.table, w.kinds)});
  const Program program = ExpectRewritten(WithNodeLinears, w.Return({w.Linear(parts, w.Weight(48 + 3), w.bias)}));
  EXPECT_EQ(LinearsOfEdges(program), 1);
  EXPECT_EQ(Count(program, "linear.default"), 4);
  EXPECT_EQ(Count(program, "cat.default"), 0);
  const int64_t biases = std::ranges::count_if(program.graph.nodes, [](const Node& node) {
    return node.target == "torch.ops.aten.linear.default" && node.inputs.size() == 3;
  });
  EXPECT_EQ(biases, 1);
}

TEST(WithNodeLinears, PassesSumsAndFactors) {
  const struct {
    const char* why;
    int64_t width, linears;
    ValueIndex (*rows)(TypedWriter& w, ValueIndex i, ValueIndex j);
  } kCases[] = {
      {"a difference of one table", 16, 1, [](TypedWriter& w, ValueIndex i, ValueIndex j) { return w.Sub(j, i); }},
      {"EdgeConv", 32, 2,
       [](TypedWriter& w, ValueIndex i, ValueIndex j) {
         return w.Cat({i, w.Sub(j, i)});
       }},
      {"a sum with another table", 16, 2,
       [](TypedWriter& w, ValueIndex /*i*/, ValueIndex j) { return w.Sum(j, w.Embedding(w.table, w.kinds)); }},
      {"a multiple", 16, 1, [](TypedWriter& w, ValueIndex i, ValueIndex /*j*/) { return w.Times(i, 0.25); }},
      {"a negative", 16, 1, [](TypedWriter& w, ValueIndex i, ValueIndex /*j*/) { return w.Neg(i); }},
      {"multiples of one table", 32, 1,
       [](TypedWriter& w, ValueIndex i, ValueIndex j) {
         return w.Cat({w.Sub(w.Times(i, 3.0), j), w.Sub(w.Times(i, -1.5), w.Times(j, -0.5))});
       }},
      {"the same rows twice", 32, 1,
       [](TypedWriter& w, ValueIndex i, ValueIndex /*j*/) {
         return w.Cat({i, i});
       }},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TypedWriter w;
    const ValueIndex i = w.Select(w.h, w.targets), j = w.Select(w.h, w.sources);
    const Program program =
        ExpectRewritten(WithNodeLinears, w.Return({w.Linear(c.rows(w, i, j), w.Weight(c.width), w.bias)}));
    EXPECT_EQ(LinearsOfEdges(program), 0);
    EXPECT_EQ(Count(program, "linear.default"), c.linears);
  }
}

TEST(WithNodeLinears, PassesDimensionsOfSizeOne) {
  TypedWriter w;
  const ValueIndex rows = w.Shape("view.default", w.h, {TypedWriter::Nodes(), {.number = 1}, {.number = 16}},
                                  {{"size", IntsOf({-1, 1, 16})}});
  const ValueIndex repeated = w.Shape("repeat.default", rows, w.SizesOf(rows), {{"repeats", IntsOf({1, 1, 1})}});
  const ValueIndex both = w.Cat({w.Select(repeated, w.targets), w.Select(repeated, w.sources)});
  const ValueIndex whole =
      w.Shape("slice.Tensor", both, w.SizesOf(both), {{"dim", int64_t{0}}, {"start", int64_t{0}}, {"end", INT64_MAX}});
  const ValueIndex flat = w.Shape("select.int", whole, {TypedWriter::Edges(), {.number = 32}},
                                  {{"dim", int64_t{1}}, {"index", int64_t{0}}});
  const ValueIndex weight = w.Weight(32);
  const Program program =
      ExpectRewritten(WithNodeLinears, w.Return({w.Linear(flat, weight, w.bias), w.Linear(whole, weight, w.bias)}));
  EXPECT_EQ(LinearsOfEdges(program), 0);
  EXPECT_EQ(Count(program, "repeat.default"), 0);
}

TEST(WithNodeLinears, MapsATableOnceForAllItsGathers) {
  TypedWriter w;
  const ValueIndex i = w.Select(w.h, w.targets), j = w.Select(w.h, w.sources);
  const Program program = ExpectRewritten(
      WithNodeLinears, w.Return({w.Linear(i, w.weight, w.bias), w.Linear(j, w.weight, w.bias), w.Sum(i, j)}));
  EXPECT_EQ(Count(program, "linear.default"), 1);
  EXPECT_EQ(Count(program, "index_select.default"), 4);
}

TEST(WithNodeLinears, ComputesWhatFollowsASmallTableOnTheTable) {
  TypedWriter w;
  const ValueIndex rows = w.Linear(w.Embedding(w.table, w.kinds), w.weight, w.bias), active = w.Relu(rows);
  const ValueIndex again = w.Weight(5), last = w.Weight(5);
  const Program program = ExpectRewritten(
      WithNodeLinears,
      w.Return({w.Linear(active, again, w.bias), w.Unary("sigmoid.default", w.Linear(w.Neg(active), last, w.bias))}));
  EXPECT_EQ(LinearsOfEdges(program), 0);
  EXPECT_EQ(Count(program, "linear.default"), 3);
  EXPECT_EQ(Count(program, "embedding.default"), 2);
  EXPECT_EQ(Count(program, "relu.default"), 1);
}

TEST(WithNodeLinears, MapsPartsThatFollowEachOther) {
  TypedWriter w;
  const ValueIndex all = w.Stacked({w.Embedding(w.table, w.kinds), w.h});
  const Program program = ExpectRewritten(WithNodeLinears, w.Return({w.Linear(all, w.weight, w.bias)}));
  EXPECT_EQ(LinearsOfEdges(program), 0);
  EXPECT_EQ(Count(program, "linear.default"), 2);
}

TEST(WithNodeLinears, LetsTheResultBeWrittenTo) {
  TypedWriter w;
  const ValueIndex rows = w.Linear(w.Select(w.h, w.sources), w.weight, w.bias),
                   written = w.Unary("relu_.default", rows);
  const Program program = ExpectRewritten(WithNodeLinears, w.Return({w.Linear(written, w.Weight(5), w.bias)}));
  EXPECT_EQ(LinearsOfEdges(program), 1);
}

TEST(WithNodeLinears, KeepsWhatNothingUsedBefore) {
  TypedWriter w;
  const ValueIndex gathered = w.Select(w.h, w.sources);
  w.Neg(w.Select(w.h, w.targets));
  const Program program = ExpectRewritten(WithNodeLinears, w.Return({w.Linear(gathered, w.weight, w.bias)}));
  EXPECT_EQ(Count(program, "neg.default"), 1);
  EXPECT_EQ(Count(program, "index_select.default"), 2);
}

TEST(WithNodeLinears, LeavesOtherMapsAlone) {
  const struct {
    const char* why;
    ValueIndex (*linear)(TypedWriter& w);
  } kCases[] = {
      {"of rows that nothing gathered", [](TypedWriter& w) { return w.Linear(w.h, w.weight, w.bias); }},
      {"of an embedding without gradients for a row",
       [](TypedWriter& w) {
         return w.Linear(w.Embedding(w.table, w.kinds, {{"padding_idx", int64_t{0}}}), w.weight, w.bias);
       }},
      {"of an embedding whose gradients are scaled",
       [](TypedWriter& w) {
         return w.Linear(w.Embedding(w.table, w.kinds, {{"scale_grad_by_freq", true}}), w.weight, w.bias);
       }},
      {"of rows without gradients",
       [](TypedWriter& w) { return w.Linear(w.Unary("detach.default", w.Select(w.h, w.sources)), w.weight, w.bias); }},
      {"of rows of which some are dropped",
       [](TypedWriter& w) {
         const ValueIndex rows = w.Select(w.h, w.sources);
         return w.Linear(w.Shape("dropout.default", rows, w.SizesOf(rows), {{"p", 0.5}, {"train", true}}, "input"),
                         w.weight, w.bias);
       }},
      {"of few columns, which are gathered as fast as the results",
       [](TypedWriter& w) { return w.Linear(w.Select(w.pos, w.sources), w.Weight(3), w.bias); }},
      {"of nodes gathered for nodes",
       [](TypedWriter& w) { return w.Linear(w.Select(w.h, w.others, 0, TypedWriter::Nodes()), w.weight, w.bias); }},
      {"of a large table", [](TypedWriter& w) { return w.Linear(w.Embedding(w.large, w.kinds), w.weight, w.bias); }},
      {"of a sum with what nothing gathered",
       [](TypedWriter& w) {
         const ValueIndex rows = w.Select(w.h, w.sources);
         return w.Linear(w.Sum(rows, w.Unary("exp.default", rows)), w.weight, w.bias);
       }},
      {"of two tables in one column, which are twice the rows",
       [](TypedWriter& w) {
         const ValueIndex other = w.Unary("exp.default", w.h);
         return w.Linear(w.Sum(w.Select(w.h, w.sources), w.Select(other, w.targets)), w.weight, w.bias);
       }},
      {"of nothing", [](TypedWriter& w) {
         const ValueIndex rows = w.Select(w.h, w.sources);
         return w.Linear(w.Sub(rows, rows), w.weight, w.bias);
       }}};
  for (const auto& c : kCases) {
    TypedWriter w;
    EXPECT_FALSE(WithNodeLinears(*w.Return({c.linear(w)}))) << c.why;
  }
}

TEST(WithNodeLinears, LeavesWhatIsWrittenToAlone) {
  const struct {
    const char* why;
    void (*write)(TypedWriter& w, ValueIndex table, ValueIndex rows, ValueIndex weight, ValueIndex index);
  } kCases[] = {
      {"the table", [](TypedWriter& w, ValueIndex table, ValueIndex, ValueIndex, ValueIndex) { w.Write(table); }},
      {"the rows", [](TypedWriter& w, ValueIndex, ValueIndex rows, ValueIndex, ValueIndex) { w.Write(rows); }},
      {"the weight", [](TypedWriter& w, ValueIndex, ValueIndex, ValueIndex weight, ValueIndex) { w.Write(weight); }},
      {"the index", [](TypedWriter& w, ValueIndex, ValueIndex, ValueIndex, ValueIndex index) { w.Write(index); }},
      {"a view of the rows", [](TypedWriter& w, ValueIndex, ValueIndex rows, ValueIndex,
                                ValueIndex) { w.Write(w.Shape("alias.default", rows, w.SizesOf(rows), {})); }},
  };
  for (const auto& c : kCases) {
    TypedWriter w;
    const ValueIndex table = w.Unary("clone.default", w.h), weight = w.Unary("clone.default", w.weight);
    const ValueIndex index = w.Unary("clone.default", w.sources), rows = w.Select(table, index);
    c.write(w, table, rows, weight, index);
    EXPECT_FALSE(WithNodeLinears(*w.Return({w.Linear(rows, weight, w.bias)}))) << c.why;
  }
}

struct ExportedCase {
  const char* name;
  int64_t before, after;  // number of linear maps with one row per edge
};
constexpr ExportedCase kExported[] = {{"edgeconv", 4, 2}, {"resgated", 6, 0}, {"pna", 4, 0}, {"own", 4, 2},
                                      {"gatv2", 2, 0},    {"gat", 2, 0},      {"cg", 4, 0},  {"transformer", 2, 0},
                                      {"nnconv", 2, 0},   {"general", 4, 0},  {"tied", 0, 0}};

class ExportedNodeLinears : public WithExports {
 protected:
  static void SetUpTestSuite() {
    std::string names;
    for (const ExportedCase& c : kExported) names += std::string(c.name) + " ";
    Export(kExportModules, names);
  }
};

// Returns the form's output, its gradients and its state after a step, all in float64.
std::optional<std::vector<Tensor>> StepInDoubles(const Form& form, std::shared_ptr<const Program> program,
                                                 const std::vector<c10::IValue>& inputs) {
  std::vector<Tensor> state;
  for (const Tensor& tensor : form.state) {
    const bool real = at::isFloatingType(tensor.scalar_type());
    state.push_back(tensor.detach().to(real ? at::kDouble : tensor.scalar_type(), false, /*copy=*/true));
    state.back().set_requires_grad(tensor.requires_grad());
  }
  auto interpreter = Interpreter::Make(std::move(program), state);
  EXPECT_TRUE(interpreter.ok()) << interpreter.status();
  try {
    std::vector<Tensor> results = {interpreter->Run(inputs)[0].toTensor()};
    torch::autograd::backward({results[0].square().sum()}, {});
    for (const Tensor& tensor : state) {
      results.push_back(tensor.detach());
      results.push_back(tensor.grad().defined() ? tensor.grad() : at::full({}, -1));
    }
    return results;
  } catch (const c10::Error&) {
    return std::nullopt;  // Batch statistics of one row are refused.
  }
}

TEST_F(ExportedNodeLinears, EqualTheProgramWithFewerRowsMultiplied) {
  for (const ExportedCase& c : kExported) {
    const LoadedProgram loaded = Load(c.name);
    for (const bool train : {false, true}) {
      const Form& form = train ? loaded.train() : loaded.eval();
      std::shared_ptr<const Program> program = form.program;
      if (auto without = WithoutSelfLoops(*program)) program = std::make_shared<const Program>(*std::move(without));
      EXPECT_EQ(LinearsOfEdges(*program), c.before) << c.name;
      auto rewritten = WithNodeLinears(*program);
      ASSERT_TRUE(rewritten) << c.name;
      EXPECT_EQ(LinearsOfEdges(*rewritten), c.after) << c.name;
      EXPECT_FALSE(WithNodeLinears(*rewritten)) << c.name;
      auto without_matrices = WithCategoryProducts(*rewritten);
      ASSERT_EQ(without_matrices.has_value(), std::string_view(c.name) == "nnconv") << c.name;
      if (without_matrices) {
        EXPECT_EQ(Count(*without_matrices, "matmul.default"), 0);
        rewritten = std::move(without_matrices);
      }
      const auto shared = std::make_shared<const Program>(*std::move(rewritten));
      for (const char* batch : {"", ".1-0-1", ".5-7-1", ".6-1-3"}) {
        SCOPED_TRACE(testing::Message() << c.name << batch << (train ? ", train" : ", eval"));
        const std::vector<c10::IValue> inputs = InputsOf(*program, Expected(std::string(c.name) + batch));
        at::manual_seed(5);
        const auto expected = StepInDoubles(form, program, inputs);
        at::manual_seed(5);
        const auto results = StepInDoubles(form, shared, inputs);
        ASSERT_EQ(results.has_value(), expected.has_value());
        if (!results) continue;
        ASSERT_EQ(results->size(), expected->size());
        for (size_t i = 0; i < results->size(); ++i) EXPECT_TRUE(IsClose((*results)[i], (*expected)[i])) << i;
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::program
