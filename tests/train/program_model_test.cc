// Tests a program as a graph-level model: what it reads of a batch, what it trains, and what it refuses. The test
// builds small programs itself; tests/program has those of torch.export.
#include "train/tasks/program_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/program_forms.h"

namespace permafrost::train {
namespace {

using at::Tensor;
using program::Argument;
using program::Form;
using program::NamedArgument;
using program::Ref;
using program::ValueIndex;
using program::ValueKind;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kDropped = 0.5;
constexpr int64_t kChannels = 3, kCategories = 5;

// The module's tensors, which both forms share.
struct Weights {
  Tensor atoms = at::linspace(-1, 1, kCategories* kChannels).view({kCategories, kChannels}).set_requires_grad(true);
  Tensor frozen = at::full({kChannels}, 2.0);
  Tensor unused = at::ones({2}).set_requires_grad(true);
  Tensor calls = at::zeros({}, at::kLong);
  Tensor scratch = at::zeros({2});
};

// For each graph, sums (h + messages of h) over its nodes and channels, where h = dropout(atoms[x]) * frozen.
// Increments `calls` at each call.
Form MakeForm(const std::string& name, const Weights& weights, const Change& change = nullptr) {
  FormBuilder form(name);
  const auto parameter = program::StateKind::kParameter, buffer = program::StateKind::kBuffer;
  const ValueIndex atoms = form.State(parameter, "atoms.weight", weights.atoms),
                   tied = form.State(parameter, "tied.weight", weights.atoms),
                   frozen = form.State(parameter, "frozen", weights.frozen);
  const ValueIndex unused = form.State(parameter, "unused.bias", weights.unused);
  const ValueIndex calls = form.State(buffer, "calls", weights.calls);
  form.State(buffer, "scratch", weights.scratch, /*persistent=*/false);
  const ValueIndex x = form.Input("x", program::DType::kInt64, {Symbol("N")}),
                   edges = form.Input("edge_index", program::DType::kInt64, {Known(2), Symbol("E")}),
                   batch = form.Input("batch", program::DType::kInt64, {Symbol("N")}),
                   graphs = form.Number("num_graphs");
  const bool training = name == "train";
  if (training) {
    form.Node("counted", "add_.Tensor", {{"self", Ref{calls}}, {"other", int64_t{1}}, {"alpha", int64_t{1}}});
  }
  form.Node("read_by_none", "neg.default", {{"self", Ref{unused}}});
  const ValueIndex rows = form.Node("rows", "embedding.default", {{"weight", Ref{atoms}}, {"indices", Ref{x}}}),
                   again = form.Node("again", "embedding.default", {{"weight", Ref{tied}}, {"indices", Ref{x}}}),
                   both = form.Node("both", "add.Tensor", {{"self", Ref{rows}}, {"other", Ref{again}}}),
                   kept = form.Node("drop", "dropout.default",
                                    {{"input", Ref{both}}, {"p", kDropped}, {"train", training}}),
                   h = form.Node("h", "mul.Tensor", {{"self", Ref{kept}}, {"other", Ref{frozen}}});
  const auto end = [&](const std::string& node, int64_t of) {
    return form.Node(node, "select.int", {{"self", Ref{edges}}, {"dim", int64_t{0}}, {"index", of}});
  };
  const ValueIndex sources = end("sources", 0), targets = end("targets", 1);
  const ValueIndex messages =
      form.Node("messages", "index_select.default", {{"self", Ref{h}}, {"dim", int64_t{0}}, {"index", Ref{sources}}});
  const auto add = [&](const std::string& node, ValueIndex self, ValueIndex index, ValueIndex source) {
    return form.Node(node, "index_add.default",
                     {{"self", Ref{self}}, {"dim", int64_t{0}}, {"index", Ref{index}}, {"source", Ref{source}}});
  };
  const ValueIndex sums = add("sums", h, targets, messages);
  const ValueIndex zeros =
      form.Node("zeros", "new_zeros.default", {{"self", Ref{sums}}, {"size", program::Ints{{Ref{graphs}, kChannels}}}});
  const ValueIndex pooled = add("pooled", zeros, batch, sums);
  const ValueIndex prediction =
      form.Node("prediction", "sum.dim_IntList", {{"self", Ref{pooled}}, {"dim", program::Ints{{int64_t{1}}}}});
  return form.Return({change ? change(form, prediction) : prediction});
}

program::LoadedProgram MakeProgram(const Weights& weights, const Change& change = nullptr) {
  return {.forms = {MakeForm("eval", weights, change), MakeForm("train", weights, change)}};
}

ProgramModelOptions Options() {
  return {.name = "mine",
          .node = {.categories = {kCategories}, .float_columns = 0},
          .edge = {},
          .num_outputs = 1,
          .max_graph_nodes = 3,
          .seed = 7};
}

std::unique_ptr<nn::GraphModel> Made(const program::LoadedProgram& loaded,
                                     const ProgramModelOptions& options = Options()) {
  auto model = MakeProgramModel(loaded, options, c10::kCPU);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}
std::string RefusalOf(const program::LoadedProgram& loaded, const ProgramModelOptions& options = Options()) {
  return std::string(MakeProgramModel(loaded, options, c10::kCPU).status().message());
}

// Returns two graphs of 3 and 2 nodes with the least padding: one node and one graph.
nn::GraphSetBatch Least(int64_t step = 0) {
  nn::GraphSetBatch batch;
  batch.padded_graphs = 3;
  batch.node_features = at::tensor({0, 1, 2, 3, 4, 0}, at::kLong).unsqueeze(1);
  batch.edge_source = at::tensor({1, 0, 1, 4}, at::kLong);
  batch.edge_target = at::tensor({0, 1, 2, 3}, at::kLong);
  batch.graph_of_node = at::tensor({0, 0, 0, 1, 1, 2}, at::kLong);
  batch.labels = at::zeros({batch.padded_graphs, 1});
  batch.real_nodes = at::tensor({5}, at::kLong);
  batch.real_graphs = at::tensor({2}, at::kLong);
  batch.step = at::tensor({step}, at::kLong);
  return batch;
}

std::vector<std::string> Names(const std::vector<nn::NamedTensor>& tensors) {
  std::vector<std::string> names;
  names.reserve(tensors.size());
  for (const nn::NamedTensor& t : tensors) names.push_back(t.name);
  return names;
}

TEST(ProgramModel, PredictsForRealGraphs) {
  const Weights weights;
  const auto model = Made(MakeProgram(weights));
  const Tensor least = model->Forward(Least(), Mode::kEval);
  // By hand: a row is 2 * atoms * 2, and a node sums its own row and those that arrive.
  const Tensor sums = weights.atoms.detach().sum(1) * 4;
  const auto row = [&](int64_t node) { return sums[node].item<float>(); };
  EXPECT_FLOAT_EQ(least[0][0].item<float>(), row(0) + row(1) + row(1) + row(0) + row(2) + row(1));
  EXPECT_FLOAT_EQ(least[1][0].item<float>(), row(3) + row(4) + row(4));
  ASSERT_EQ(least.sizes(), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(least[2][0].item<float>(), 0);
}

TEST(ProgramModel, DropsByStep) {
  const auto model = Made(MakeProgram(Weights()));
  const auto real = [&](const nn::GraphSetBatch& batch) {
    return model->Forward(batch, Mode::kTrain).narrow(0, 0, 2).detach();
  };
  const Tensor first = real(Least(0));
  EXPECT_TRUE(at::equal(first, real(Least(0))));
  bool differs = false;
  for (int64_t step = 1; step < 8; ++step) differs = differs || !at::equal(first, real(Least(step)));
  EXPECT_TRUE(differs);
  EXPECT_FALSE(at::equal(first, model->Forward(Least(), Mode::kEval).narrow(0, 0, 2)));
}

TEST(ProgramModel, TrainsWhatTheModuleTrainsUnderItsNames) {
  const Weights weights;
  const auto model = Made(MakeProgram(weights));
  EXPECT_THAT(Names(model->tensors().parameters()), ElementsAre("atoms.weight"));
  EXPECT_THAT(Names(model->tensors().buffers()), ElementsAre("frozen", "unused.bias", "calls"));
  EXPECT_EQ(model->tensors().fixed_parameters(), 2);
  EXPECT_EQ(model->tensors().num_parameter_values(), kCategories * kChannels + kChannels + 2);

  torch::autograd::backward({model->Forward(Least(), Mode::kTrain).sum()}, {});
  const Tensor& atoms = model->tensors().parameters()[0].value;
  ASSERT_TRUE(atoms.grad().defined());
  EXPECT_GT(atoms.grad().abs().sum().item<float>(), 0);
  const auto calls = [&] { return model->tensors().buffers()[2].value.item<int64_t>(); };
  EXPECT_EQ(calls(), 1);
  model->Forward(Least(), Mode::kEval);
  EXPECT_EQ(calls(), 1);

  // The model trains copies, so a second job begins with the tensors of the file.
  EXPECT_EQ(weights.calls.item<int64_t>(), 0);
  EXPECT_FALSE(weights.atoms.grad().defined());
  // Both names of a tied weight, and both forms, read the loaded weight.
  const Tensor before = model->Forward(Least(), Mode::kEval).detach();
  ASSERT_TRUE(model->tensors().CopyFrom(nn::Clone(model->tensors().All())).ok());
  std::vector<nn::NamedTensor> doubled = nn::Clone(model->tensors().All());
  doubled[0].value.mul_(2);
  ASSERT_TRUE(model->tensors().CopyFrom(doubled).ok());
  EXPECT_TRUE(at::allclose(model->Forward(Least(), Mode::kEval), before * 2));
}

TEST(ProgramModel, RefusesWhatASetOfGraphsHasNothingFor) {
  const Weights weights;
  const auto with_input = [&](const std::string& name, program::DType dtype, std::vector<program::Size> sizes) {
    return RefusalOf(MakeProgram(weights, [&](FormBuilder& form, ValueIndex prediction) {
      form.Input(name, dtype, sizes);
      return prediction;
    }));
  };
  EXPECT_THAT(with_input("edge_weight", program::DType::kFloat32, {Symbol("E")}),
              HasSubstr("program \"mine\": input \"edge_weight\": sets of graphs have nothing for it; accepted: x, "));
  EXPECT_THAT(with_input("pos", program::DType::kFloat32, {Symbol("N"), Known(3)}),
              HasSubstr("input \"pos\": the dataset has no such features"));
  EXPECT_THAT(with_input("edge_attr", program::DType::kInt64, {Symbol("E")}),
              HasSubstr("input \"edge_attr\": the dataset has no such features"));

  ProgramModelOptions floats = Options();
  floats.node = {.categories = {}, .float_columns = 1};
  EXPECT_THAT(RefusalOf(MakeProgram(weights), floats),
              HasSubstr("input \"x\": the program takes int64 of 1 dimensions; the dataset has 1 column of float32"));
  ProgramModelOptions wide = Options();
  wide.node.categories = {kCategories, 2};
  EXPECT_THAT(RefusalOf(MakeProgram(weights), wide), HasSubstr("the dataset has 2 columns of int64"));

  EXPECT_THAT(
      RefusalOf(MakeProgram(
          weights,
          [](FormBuilder& form, ValueIndex prediction) {
            return form.Node("drawn", "multinomial.default", {{"self", Ref{prediction}}, {"num_samples", int64_t{1}}});
          })),
      HasSubstr("node drawn (torch.ops.aten.multinomial.default): draws numbers"));
  Weights doubles;
  doubles.atoms = doubles.atoms.detach().to(at::kDouble).set_requires_grad(true);
  EXPECT_THAT(RefusalOf(MakeProgram(doubles)), HasSubstr("parameter atoms.weight: is Double, where Float is trained"));
  Weights fixed;
  fixed.atoms = fixed.atoms.detach();
  EXPECT_THAT(RefusalOf(MakeProgram(fixed)), HasSubstr("it has no parameters to train"));
}

TEST(ProgramModel, ReadsThePositionsOfRealNodes) {
  const program::LoadedProgram loaded = MakeProgram(Weights(), [](FormBuilder& form, ValueIndex prediction) {
    const ValueIndex pos = form.Input("pos", program::DType::kFloat32, {Symbol("N"), Known(2)}),
                     sum = form.Node("places", "sum.default", {{"self", Ref{pos}}});
    return form.Node("placed", "add.Tensor", {{"self", Ref{prediction}}, {"other", Ref{sum}}});
  });
  ProgramModelOptions options = Options();
  options.positions.float_columns = 3;
  EXPECT_THAT(
      RefusalOf(loaded, options),
      HasSubstr("program \"mine\": input \"pos\": the program takes float32 of 2 dimensions, with 2 columns; the "
                "dataset has 3 columns of float32"));
  options.positions.float_columns = 2;
  nn::GraphSetBatch batch = Least();
  batch.positions = at::arange(12, at::kFloat).view({6, 2});
  const Tensor more =
      Made(loaded, options)->Forward(batch, Mode::kEval) - Made(MakeProgram(Weights()))->Forward(batch, Mode::kEval);
  EXPECT_TRUE(at::allclose(more.narrow(0, 0, 2), at::full({2, 1}, 45.0))) << "the padding node's are 10 and 11";
}

// Adds to a prediction the number of edges that are no self-loops, which a mask selects.
ValueIndex AddEdgesLeft(FormBuilder& form, ValueIndex prediction) {
  constexpr ValueIndex kEdgeIndex = 7;  // the value's index in MakeForm, after six tensors and x
  const auto end = [&](const std::string& node, int64_t of) {
    return form.Node(node, "select.int", {{"self", Ref{kEdgeIndex}}, {"dim", int64_t{0}}, {"index", of}});
  };
  const ValueIndex from = end("from", 0), to = end("to", 1),
                   mask = form.Node("others", "ne.Tensor", {{"self", Ref{from}}, {"other", Ref{to}}}),
                   left = form.Node("left", "index.Tensor", {{"self", Ref{from}}, {"indices", program::Refs{{mask}}}}),
                   ones = form.Node("each", "ones_like.default", {{"self", Ref{left}}}),
                   count = form.Node("count", "sum.default", {{"self", Ref{ones}}});
  return form.Node("more", "add.Tensor", {{"self", Ref{prediction}}, {"other", Ref{count}}});
}

TEST(ProgramModel, LeavesOutWhatRemovesSelfLoopsWhereToldThatThereAreNone) {
  const Weights weights;
  const program::LoadedProgram loaded = MakeProgram(weights, AddEdgesLeft);
  ProgramModelOptions none = Options();
  none.no_self_loops = true;
  const auto removes = Made(loaded), without = Made(loaded, none);
  EXPECT_TRUE(at::equal(removes->Forward(Least(), Mode::kEval), without->Forward(Least(), Mode::kEval)));
  EXPECT_EQ(Names(without->tensors().parameters()), Names(removes->tensors().parameters()));

  nn::GraphSetBatch loop = Least();
  loop.edge_source = at::tensor({1, 1, 1, 4}, at::kLong);  // now the second edge also ends at node 1
  const Tensor fewer = removes->Forward(loop, Mode::kEval) - without->Forward(loop, Mode::kEval);
  EXPECT_TRUE(at::allclose(fewer.narrow(0, 0, 2), at::full({2, 1}, -1.0)));
}

TEST(ProgramModel, SaysWhatAPredictionMustBe) {
  ProgramModelOptions two = Options();
  two.num_outputs = 2;
  const auto model = Made(MakeProgram(Weights()), two);
  try {
    model->Forward(Least(), Mode::kEval);
    FAIL() << "a prediction of one column was taken for two";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the module predicts [2], where [2, 2] is accepted"));
  }
}

}  // namespace
}  // namespace permafrost::train
