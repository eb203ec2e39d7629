// A program as a graph-level model: what it reads of a batch, what it trains, and what it refuses. The programs are
// small and made here; tests/program holds those of torch.export.
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

// A form that is written node by node.
class FormBuilder {
 public:
  explicit FormBuilder(std::string name) { program_.form = std::move(name); }

  ValueIndex Value(const std::string& name, ValueKind kind = ValueKind::kTensor) {
    program_.graph.values.push_back({name, kind});
    return static_cast<ValueIndex>(program_.graph.values.size()) - 1;
  }
  ValueIndex State(program::StateKind kind, const std::string& name, const Tensor& tensor, bool persistent = true) {
    program::State state;
    state.kind = kind;
    state.name = name;
    state.value = Value(name);
    state.persistent = persistent;
    program_.graph.inputs.push_back(state.value);
    program_.state.push_back(state);
    state_.push_back(tensor);
    return state.value;
  }
  ValueIndex Input(const std::string& name, program::DType dtype, std::vector<program::Size> sizes) {
    program::Input input{.name = name, .value = Value(name), .kind = ValueKind::kTensor, .type = {}, .size = {}};
    input.type = {.dtype = dtype, .sizes = std::move(sizes), .requires_grad = false};
    return Add(input);
  }
  ValueIndex Number(const std::string& name) {
    program::Input input{
        .name = name, .value = Value(name, ValueKind::kInt), .kind = ValueKind::kInt, .type = {}, .size = {}};
    input.size.expression = "G";
    return Add(input);
  }
  ValueIndex Node(const std::string& name, const std::string& op, std::vector<NamedArgument> inputs) {
    program::Node node;
    node.name = name;
    node.target = "torch.ops.aten." + op;
    node.inputs = std::move(inputs);
    const ValueIndex value = Value(name);
    node.outputs.push_back({.values = {value}, .is_list = false});
    program_.graph.nodes.push_back(std::move(node));
    return value;
  }
  Form Return(std::vector<ValueIndex> outputs) {
    program_.graph.outputs = outputs;
    program_.outputs = std::move(outputs);
    return {.program = std::make_shared<const program::Program>(std::move(program_)), .state = std::move(state_)};
  }

 private:
  ValueIndex Add(const program::Input& input) {
    program_.graph.inputs.push_back(input.value);
    program_.inputs.push_back(input);
    return input.value;
  }

  program::Program program_;
  std::vector<Tensor> state_;
};

program::Size Symbol(const std::string& name) { return {.number = 0, .expression = name}; }
program::Size Known(int64_t number) { return {.number = number, .expression = ""}; }

// The module's tensors, which both forms share.
struct Weights {
  Tensor atoms = at::linspace(-1, 1, kCategories* kChannels).view({kCategories, kChannels}).set_requires_grad(true);
  Tensor frozen = at::full({kChannels}, 2.0);
  Tensor unused = at::ones({2}).set_requires_grad(true);
  Tensor calls = at::zeros({}, at::kLong);
  Tensor scratch = at::zeros({2});
};

// Changes what a program returns, or adds to it.
using Change = std::function<ValueIndex(FormBuilder& form, ValueIndex prediction)>;

// sum over channels, and over a graph's nodes, of (h + messages of h), h = dropout(atoms[x]) * frozen. `calls` counts.
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

// Two graphs of 3 and 2 nodes, with the least padding: a node and a graph.
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
  // By hand: rows are 2 * atoms * 2, and a node has its own and those that arrive.
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

  // The model's are copies: a second job begins with what the file holds.
  EXPECT_EQ(weights.calls.item<int64_t>(), 0);
  EXPECT_FALSE(weights.atoms.grad().defined());
  // Both names of a tied weight, and both forms, read what is loaded.
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

// Adds to a prediction how many of its edges are no self-loops, as a mask leaves them.
ValueIndex AddEdgesLeft(FormBuilder& form, ValueIndex prediction) {
  constexpr ValueIndex kEdgeIndex = 7;  // of MakeForm, after six tensors and x
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
  loop.edge_source = at::tensor({1, 1, 1, 4}, at::kLong);  // The second edge ends at node 1, too.
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

// Predicts weight * x plus its weighted sum over in-edges; `seeds`: for the seeds alone. With `loss` it also returns
// the sum of (prediction - y)^2 over labels that are there.
Form MakeNodeForm(const std::string& name, const Tensor& weight, bool seeds, bool loss, const Change& more = nullptr) {
  FormBuilder form(name);
  const ValueIndex w = form.State(program::StateKind::kParameter, "weight", weight);
  const ValueIndex x = form.Input("x", program::DType::kFloat32, {Symbol("N"), Known(2)}),
                   edges = form.Input("edge_index", program::DType::kInt64, {Known(2), Symbol("E")}),
                   weights = form.Input("edge_weight", program::DType::kFloat32, {Symbol("E")}),
                   y = loss ? form.Input("y", program::DType::kFloat32, {Symbol("N"), Known(2)}) : 0,
                   count = form.Number("batch_size");
  const ValueIndex h = form.Node("h", "mul.Tensor", {{"self", Ref{x}}, {"other", Ref{w}}});
  const auto end = [&](const std::string& node, int64_t of) {
    return form.Node(node, "select.int", {{"self", Ref{edges}}, {"dim", int64_t{0}}, {"index", of}});
  };
  const ValueIndex sources = end("sources", 0), targets = end("targets", 1);
  const ValueIndex rows =
      form.Node("rows", "index_select.default", {{"self", Ref{h}}, {"dim", int64_t{0}}, {"index", Ref{sources}}});
  const ValueIndex column = form.Node("column", "unsqueeze.default", {{"self", Ref{weights}}, {"dim", int64_t{1}}});
  const ValueIndex messages = form.Node("messages", "mul.Tensor", {{"self", Ref{rows}}, {"other", Ref{column}}});
  ValueIndex out =
      form.Node("sums", "index_add.default",
                {{"self", Ref{h}}, {"dim", int64_t{0}}, {"index", Ref{targets}}, {"source", Ref{messages}}});
  if (seeds) {
    out = form.Node("seeds", "narrow.default",
                    {{"self", Ref{out}}, {"dim", int64_t{0}}, {"start", int64_t{0}}, {"length", Ref{count}}});
  }
  if (more) out = more(form, out);
  if (!loss) return form.Return({out});
  const ValueIndex difference = form.Node("difference", "sub.Tensor", {{"self", Ref{out}}, {"other", Ref{y}}}),
                   known = form.Node("known", "nan_to_num.default", {{"self", Ref{difference}}, {"nan", 0.0}}),
                   squares = form.Node("squares", "mul.Tensor", {{"self", Ref{known}}, {"other", Ref{known}}}),
                   sum = form.Node("sum", "sum.default", {{"self", Ref{squares}}});
  return form.Return({out, sum});
}

program::LoadedProgram NodeProgram(const Tensor& weight, bool seeds = false, bool loss = false) {
  return {.forms = {MakeNodeForm("eval", weight, seeds, loss), MakeNodeForm("train", weight, seeds, loss)}};
}

ProgramModelOptions NodeOptions() {
  return {.name = "mine",
          .node = {.categories = {}, .float_columns = 2},
          .edge = {},
          .labels = {.categories = {}, .float_columns = 2},
          .weighted = true,
          .num_outputs = 2,
          .padding_rows = 1};
}

// Two seeds, another node, and the padding row, whose features must not be read.
nn::NodeBlock BlockOf() {
  nn::NodeBlock block;
  block.row_ends = {2, 4};
  block.features = at::tensor({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 1e30f, 1e30f}).view({4, 2});
  block.sources = at::tensor({2, 0, 1}, at::kLong);
  block.edge_targets = at::tensor({0, 1, 2}, at::kLong);
  block.edge_weights = at::tensor({0.5f, 1.0f, 2.0f});
  block.labels = at::tensor({1.0f, 1.0f, 1.0f, std::numeric_limits<float>::quiet_NaN()}).view({2, 2});
  block.step = at::zeros({1}, at::kLong);
  return block;
}

TEST(ProgramOfNodes, PredictsForSeeds) {
  const Tensor weight = at::full({2}, 10.0).set_requires_grad(true);
  for (const bool seeds : {false, true}) {
    auto model = MakeProgramOfNodes(NodeProgram(weight, seeds), NodeOptions(), c10::kCPU);
    ASSERT_TRUE(model.ok()) << model.status();
    const Tensor rows = (*model)->Forward(BlockOf(), Mode::kEval);
    EXPECT_TRUE(rows.allclose(at::tensor({35.0f, 50.0f, 40.0f, 60.0f}).view({2, 2}))) << rows;
    EXPECT_FALSE((*model)->TakeLoss().defined());
  }
}

TEST(ProgramOfNodes, ReadsThePositionsOfRealNodes) {
  const Tensor weight = at::full({2}, 10.0).set_requires_grad(true);
  const auto place = [](FormBuilder& form, ValueIndex prediction) {
    const ValueIndex pos = form.Input("pos", program::DType::kFloat32, {Symbol("N"), Known(2)}),
                     sum = form.Node("places", "sum.default", {{"self", Ref{pos}}});
    return form.Node("placed", "add.Tensor", {{"self", Ref{prediction}}, {"other", Ref{sum}}});
  };
  const program::LoadedProgram placed{
      .forms = {MakeNodeForm("eval", weight, false, false, place), MakeNodeForm("train", weight, false, false, place)}};
  ProgramModelOptions options = NodeOptions();
  EXPECT_THAT(std::string(MakeProgramOfNodes(placed, options, c10::kCPU).status().message()),
              HasSubstr("input \"pos\": the dataset has no such features"));
  options.positions.float_columns = 2;
  auto model = MakeProgramOfNodes(placed, options, c10::kCPU),
       plain = MakeProgramOfNodes(NodeProgram(weight), options, c10::kCPU);
  ASSERT_TRUE(model.ok() && plain.ok()) << model.status();
  nn::NodeBlock block = BlockOf();
  block.positions = at::arange(8, at::kFloat).view({4, 2});
  const Tensor more = (*model)->Forward(block, Mode::kEval) - (*plain)->Forward(block, Mode::kEval);
  EXPECT_TRUE(more.allclose(at::full({2, 2}, 15.0))) << "the padding node's are 6 and 7: " << more;
}

// Scores a pair by the first column of its source's row, plus the second of its target's.
ValueIndex AddScores(FormBuilder& form, ValueIndex rows) {
  const ValueIndex pairs = form.Input("edge_label_index", program::DType::kInt64, {Known(2), Symbol("P")});
  const auto end = [&](const std::string& name, int64_t of) {
    const ValueIndex ends =
        form.Node(name + "s", "select.int", {{"self", Ref{pairs}}, {"dim", int64_t{0}}, {"index", of}});
    const ValueIndex column =
        form.Node(name + "_column", "select.int", {{"self", Ref{rows}}, {"dim", int64_t{1}}, {"index", of}});
    return form.Node(name, "index_select.default", {{"self", Ref{column}}, {"dim", int64_t{0}}, {"index", Ref{ends}}});
  };
  return form.Node("scores", "add.Tensor", {{"self", Ref{end("from", 0)}}, {"other", Ref{end("to", 1)}}});
}

TEST(ProgramOfNodes, ScoresPairs) {
  const Tensor weight = at::full({2}, 10.0).set_requires_grad(true);
  const auto scores = [&](int64_t columns) {
    const auto change = [=](FormBuilder& form, ValueIndex rows) {
      const ValueIndex made = AddScores(form, rows);
      if (columns == 0) return made;
      const ValueIndex column = form.Node("column_of", "unsqueeze.default", {{"self", Ref{made}}, {"dim", int64_t{1}}});
      if (columns == 1) return column;
      return form.Node("columns", "repeat.default",
                       {{"self", Ref{column}}, {"repeats", program::Ints{{int64_t{1}, columns}}}});
    };
    return program::LoadedProgram{.forms = {MakeNodeForm("eval", weight, false, false, change),
                                            MakeNodeForm("train", weight, false, false, change)}};
  };
  ProgramModelOptions options = NodeOptions();
  EXPECT_THAT(std::string(MakeProgramOfNodes(scores(0), options, c10::kCPU).status().message()),
              HasSubstr("input \"edge_label_index\": the job predicts no links; accepted: with link_prediction"));
  options.num_outputs = 0;
  options.labels = {};
  nn::NodeBlock block = BlockOf();
  block.pairs = {at::tensor({0, 1, 1}, at::kLong), at::tensor({1, 0, 1}, at::kLong)};
  for (const int64_t columns : {0, 1, 2}) {
    auto model = MakeProgramOfNodes(scores(columns), options, c10::kCPU);
    ASSERT_TRUE(model.ok()) << model.status();
    if (columns < 2) {
      // The rows are (35, 50) and (40, 60).
      const Tensor made = (*model)->Forward(block, Mode::kEval);
      EXPECT_TRUE(made.equal(at::tensor({95.0F, 90.0F, 100.0F}).view({3, 1}))) << made;
      continue;
    }
    try {
      (*model)->Forward(block, Mode::kEval);
      FAIL() << "two scores of a pair were taken for one";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the module returns [3, 2], where [3] or [3, 1] is accepted: a score for"));
    }
  }
}

TEST(ProgramOfNodes, ReturnsTheLossOfTheModuleOnce) {
  const Tensor weight = at::full({2}, 10.0).set_requires_grad(true);
  auto model = MakeProgramOfNodes(NodeProgram(weight, /*seeds=*/false, /*loss=*/true), NodeOptions(), c10::kCPU);
  ASSERT_TRUE(model.ok()) << model.status();
  (*model)->Forward(BlockOf(), Mode::kTrain);
  const Tensor loss = (*model)->TakeLoss();
  ASSERT_TRUE(loss.defined());
  // The third node is no seed, and the second seed lacks a label.
  EXPECT_FLOAT_EQ(loss.item<float>(), 34 * 34 + 49 * 49 + 39 * 39);
  EXPECT_FALSE((*model)->TakeLoss().defined());
  torch::autograd::backward({loss}, {});
  EXPECT_TRUE((*model)->tensors().parameters()[0].value.grad().isfinite().all().item<bool>());
}

TEST(ProgramOfNodes, RefusesWhatALargeGraphHasNothingFor) {
  const Tensor weight = at::full({2}, 10.0).set_requires_grad(true);
  const auto refusal = [&](const ProgramModelOptions& options, bool loss = false) {
    return std::string(MakeProgramOfNodes(NodeProgram(weight, false, loss), options, c10::kCPU).status().message());
  };
  ProgramModelOptions options = NodeOptions();
  options.weighted = false;
  EXPECT_THAT(refusal(options), HasSubstr("input \"edge_weight\": the dataset's edges have no weights"));
  options = NodeOptions();
  options.node.float_columns = 3;
  EXPECT_THAT(refusal(options), HasSubstr("input \"x\": the program takes float32 of 2 dimensions, with 2 columns"));
  options = NodeOptions();
  options.labels = {};
  EXPECT_THAT(refusal(options, /*loss=*/true), HasSubstr("input \"y\": links have no labels"));
  const auto sets = MakeProgramModel(NodeProgram(weight), NodeOptions(), c10::kCPU);
  EXPECT_THAT(std::string(sets.status().message()), HasSubstr("input \"edge_weight\": sets of graphs have nothing"));
}

}  // namespace
}  // namespace permafrost::train
