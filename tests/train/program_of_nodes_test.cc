// Tests a program as a model of one large graph: what it reads of a block, and what it refuses.
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
using program::Form;
using program::Ref;
using program::ValueIndex;
using testing::HasSubstr;

// Predicts weight * x plus its weighted sum over in-edges. With `seeds`, it predicts only for the seeds. With `loss`,
// it also returns the sum of (prediction - y)^2 over the labels that are present.
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

// Returns two seeds, one more node, and the padding row, whose features must not be read.
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

// Scores a pair by adding the first column of the source's row and the second column of the target's row.
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
  // The third node is no seed, and the second seed has no label.
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
