// Programs rewritten for graphs without self-loops. PyG's layers mask self-loops out of the edges and of values along
// them, and the rewriting drops these masks.
#include "program/rewritings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "program/exported.h"
#include "program/interpreter.h"

namespace permafrost::program {
namespace {

using at::Tensor;

// Builds a program with the inputs edge_index [2, E] and weight [E], node by node.
class Writer {
 public:
  Writer() {
    edges = Input("edge_index", DType::kInt64, {{.number = 2, .expression = ""}, {.number = 0, .expression = "E"}});
    weight = Input("weight", DType::kFloat32, {{.number = 0, .expression = "E"}});
  }
  ValueIndex Node(const std::string& op, std::vector<NamedArgument> inputs) {
    program::Node& node = program_.graph.nodes.emplace_back();
    node.name = "node_" + std::to_string(program_.graph.nodes.size());
    node.target = "torch.ops.aten." + op;
    node.inputs = std::move(inputs);
    const ValueIndex value = Value(node.name, ValueKind::kTensor);
    node.outputs.push_back({.values = {value}, .is_list = false});
    return value;
  }
  ValueIndex Row(ValueIndex of, int64_t row) {
    return Node("select.int", {{"self", Ref{of}}, {"dim", int64_t{0}}, {"index", row}});
  }
  ValueIndex Compare(const std::string& op, ValueIndex a, ValueIndex b) {
    return Node(op, {{"self", Ref{a}}, {"other", Ref{b}}});
  }
  // Returns the mask of the edges that are not self-loops.
  ValueIndex Others(ValueIndex of) { return Compare("ne.Tensor", Row(of, 0), Row(of, 1)); }
  ValueIndex Not(ValueIndex mask) { return Node("bitwise_not.default", {{"self", Ref{mask}}}); }
  ValueIndex Take(ValueIndex self, std::vector<ValueIndex> indices) {
    return Node("index.Tensor", {{"self", Ref{self}}, {"indices", Refs{std::move(indices)}}});
  }
  // Returns the edges `of`, followed by a self-loop for each of five nodes.
  ValueIndex WithLoops(ValueIndex of) {
    const ValueIndex numbers = Node("arange.default", {{"end", int64_t{5}}});
    const ValueIndex row = Node("view.default", {{"self", Ref{numbers}}, {"size", Ints{{int64_t{1}, int64_t{-1}}}}});
    const ValueIndex loops = Node("repeat.default", {{"self", Ref{row}}, {"repeats", Ints{{int64_t{2}, int64_t{1}}}}});
    return Node("cat.default", {{"tensors", Refs{{of, loops}}}, {"dim", int64_t{1}}});
  }
  std::shared_ptr<const Program> Return(std::vector<ValueIndex> outputs) {
    program_.graph.outputs = outputs;
    program_.outputs = std::move(outputs);
    return std::make_shared<const Program>(program_);
  }

  ValueIndex edges, weight;

 private:
  ValueIndex Value(const std::string& name, ValueKind kind) {
    program_.graph.values.push_back({name, kind});
    return static_cast<ValueIndex>(program_.graph.values.size()) - 1;
  }
  ValueIndex Input(const std::string& name, DType dtype, std::vector<Size> sizes) {
    program::Input input{.name = name, .value = Value(name, ValueKind::kTensor), .kind = {}, .type = {}, .size = {}};
    input.type = {.dtype = dtype, .sizes = std::move(sizes), .requires_grad = false};
    program_.graph.inputs.push_back(input.value);
    program_.inputs.push_back(input);
    return input.value;
  }

  Program program_;
};

std::vector<c10::IValue> Batch() {
  return {at::tensor({1, 0, 1, 4, 2, 1, 2, 3}, at::kLong).view({2, 4}), at::tensor({1.f, 2.f, 3.f, 4.f})};
}

std::vector<Tensor> RunAll(std::shared_ptr<const Program> program) {
  auto interpreter = Interpreter::Make(std::move(program), {});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status();
  std::vector<Tensor> outputs;
  for (const c10::IValue& value : interpreter->Run(Batch())) outputs.push_back(value.toTensor());
  return outputs;
}

bool ReadsOrWritesAMask(const Program& program) {
  for (const Node& node : program.graph.nodes)
    if (node.target.starts_with("torch.ops.aten.index.") || node.target.starts_with("torch.ops.aten.index_put"))
      return true;
  return false;
}

// Rewrites the program, checks that no mask is left, and compares the outputs.
void ExpectEqualWithoutMasks(const std::shared_ptr<const Program>& program) {
  auto rewritten = WithoutSelfLoops(*program);
  ASSERT_TRUE(rewritten);
  EXPECT_FALSE(ReadsOrWritesAMask(*rewritten));
  const std::vector<Tensor> expected = RunAll(program),
                            outputs = RunAll(std::make_shared<const Program>(*std::move(rewritten)));
  ASSERT_EQ(outputs.size(), expected.size());
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(at::equal(outputs[i], expected[i])) << "output " << i;
}

TEST(WithoutSelfLoops, ReadsAllEdgesOrNone) {
  Writer w;
  const ValueIndex others = w.Others(w.edges), loops = w.Not(others);
  const ValueIndex same = w.Compare("eq.Tensor", w.Row(w.edges, -1), w.Row(w.edges, -2));
  const ValueIndex left = w.Take(w.edges, {kNoValue, others});
  ExpectEqualWithoutMasks(w.Return({left, w.Take(w.weight, {others}), w.Take(w.weight, {loops}),
                                    w.Take(w.Row(w.edges, 0), {same}), w.Take(left, {kNoValue, w.Others(left)})}));
}

TEST(WithoutSelfLoops, KnowsWhereThoseLieThatTheProgramAdds) {
  Writer w;
  const ValueIndex left = w.Take(w.edges, {kNoValue, w.Others(w.edges)});
  const ValueIndex all = w.WithLoops(w.WithLoops(left)), others = w.Others(all);
  const ValueIndex again = w.Take(all, {kNoValue, others});
  ExpectEqualWithoutMasks(w.Return({w.Take(w.Row(all, 1), {w.Not(others)}), w.Take(w.Row(all, 1), {others}), again,
                                    w.Take(w.weight, {w.Others(again)})}));
}

TEST(WithoutSelfLoops, CopiesWhatIsWrittenTo) {
  Writer w;
  const ValueIndex others = w.Others(w.edges), copy = w.Take(w.weight, {others}),
                   none = w.Take(w.weight, {w.Not(others)});
  w.Node("add_.Tensor", {{"self", Ref{copy}}, {"other", int64_t{1}}});
  w.Node("add_.Tensor", {{"self", Ref{none}}, {"other", int64_t{1}}});
  ExpectEqualWithoutMasks(w.Return({w.weight, copy, none}));
}

TEST(WithoutSelfLoops, WritesToRowsOfAMask) {
  Writer w;
  const ValueIndex all = w.WithLoops(w.edges), loops = w.Not(w.Others(all));
  const ValueIndex values = w.Node("ones.default", {{"size", Ints{{int64_t{9}}}}});
  const ValueIndex sevens = w.Node("full.default", {{"size", Ints{{int64_t{5}}}}, {"fill_value", 7.0}});
  const auto put = [&](const std::string& op, ValueIndex self, ValueIndex mask, ValueIndex rows) {
    return w.Node(op, {{"self", Ref{self}}, {"indices", Refs{{mask}}}, {"values", Ref{rows}}});
  };
  const ValueIndex beside = put("index_put.default", values, loops, sevens);
  const ValueIndex in_place = put("index_put_.default", values, w.Others(all), w.weight);
  ExpectEqualWithoutMasks(w.Return({beside, in_place, values}));
}

TEST(WithoutSelfLoops, LeavesOtherMasksAlone) {
  const struct {
    const char* why;
    ValueIndex (*mask)(Writer& w);
  } kCases[] = {
      {"of features",
       [](Writer& w) {
         return w.Node("gt.Scalar", {{"self", Ref{w.weight}}, {"other", int64_t{2}}});
       }},
      {"of one row", [](Writer& w) { return w.Compare("eq.Tensor", w.Row(w.edges, 0), w.Row(w.edges, 0)); }},
      {"of an order", [](Writer& w) { return w.Compare("gt.Tensor", w.Row(w.edges, 0), w.Row(w.edges, 1)); }},
      {"of one node",
       [](Writer& w) {
         return w.Node("ne.Scalar", {{"self", Ref{w.Row(w.edges, 0)}}, {"other", int64_t{0}}});
       }},
      {"of edges that were flipped",
       [](Writer& w) {
         const ValueIndex ordered = w.Node("sort.default", {{"self", Ref{w.edges}}, {"dim", int64_t{1}}});
         return w.Others(ordered);
       }},
      {"of edges that were written to",
       [](Writer& w) {
         const ValueIndex own = w.Node("clone.default", {{"self", Ref{w.edges}}});
         w.Node("zero_.default", {{"self", Ref{own}}});
         return w.Others(own);
       }},
      {"that was written to",
       [](Writer& w) {
         const ValueIndex mask = w.Others(w.edges);
         w.Node("logical_and_.default", {{"self", Ref{mask}}, {"other", Ref{w.weight}}});
         return mask;
       }},
      {"of edges before those that follow",
       [](Writer& w) {
         const ValueIndex twice = w.Node("cat.default", {{"tensors", Refs{{w.edges, w.edges}}}, {"dim", int64_t{1}}});
         return w.Others(twice);
       }},
  };
  for (const auto& c : kCases) {
    Writer w;
    const ValueIndex mask = c.mask(w);
    EXPECT_FALSE(WithoutSelfLoops(*w.Return({w.Take(w.weight, {mask})}))) << c.why;
  }
}

class ExportedWithoutSelfLoops : public WithExports {
 protected:
  static void SetUpTestSuite() { Export(kExportModules, "gcn gat gatv2 cheb pdn sg appnp"); }
};

// Returns whether the result of a comparison is used as an index.
bool IndexesByComparison(const Program& program) {
  std::set<ValueIndex> masks;
  for (const Node& node : program.graph.nodes) {
    for (const char* op : {"aten.ne.", "aten.eq.", "aten.bitwise_not.", "aten.logical_not."})
      if (node.target.find(op) != std::string::npos) masks.insert(node.outputs[0].values[0]);
    if (node.target.find("aten.index") == std::string::npos) continue;
    for (const NamedArgument& input : node.inputs) {
      if (const auto* refs = std::get_if<Refs>(&input.value); refs != nullptr)
        for (const ValueIndex value : refs->values)
          if (masks.contains(value)) return true;
    }
  }
  return false;
}

// Returns the output of a form at these inputs, and its gradients in the order of the parameters.
std::vector<Tensor> Step(const Form& form, const std::vector<c10::IValue>& inputs) {
  Interpreter interpreter = MakeInterpreter(form);
  std::vector<Tensor> results = {interpreter.Run(inputs)[0].toTensor()};
  torch::autograd::backward({results[0].square().sum()}, {});
  for (const Tensor& tensor : form.state)
    if (tensor.grad().defined()) results.push_back(tensor.grad());
  return results;
}

// Compares the program with its own rewriting. exported_test.cc compares it with PyTorch.
TEST_F(ExportedWithoutSelfLoops, EqualsTheProgramInOutputsAndGradients) {
  for (const std::string& name : Names()) {
    SCOPED_TRACE(name);
    const LoadedProgram loaded = Load(name), other = Load(name);
    Tensors tensors = Expected(name);
    const Tensor sources = tensors["in.edge_index"][0], targets = tensors["in.edge_index"][1];
    const int64_t nodes = tensors["in.x"].size(0);
    tensors["in.edge_index"] = at::stack({sources, at::where(sources == targets, (targets + 1) % nodes, targets)});
    for (const bool train : {false, true}) {
      const Form& form = train ? loaded.train() : loaded.eval();
      Form rewritten = train ? other.train() : other.eval();
      auto program = WithoutSelfLoops(*form.program);
      ASSERT_TRUE(program);
      EXPECT_TRUE(IndexesByComparison(*form.program));
      EXPECT_FALSE(IndexesByComparison(*program));
      rewritten.program = std::make_shared<const Program>(*std::move(program));
      const std::vector<c10::IValue> inputs = InputsOf(*form.program, tensors);
      const std::vector<Tensor> expected = Step(form, inputs), results = Step(rewritten, inputs);
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(EqualBits(results[i], expected[i])) << i;
    }
  }
}

}  // namespace
}  // namespace permafrost::program
