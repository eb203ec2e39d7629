// Compares models with their formulas written out over dense matrices. As in PyG on a sampled subgraph, the formulas
// run every layer over every row. Padding must not change training, either.
#include "nn/models/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "nn/loss.h"
#include "nn/models/node_block_plan.h"
#include "nn/models/node_model_formula.h"
#include "nn/models/relative_difference.h"
#include "nn/ops/segment_ops.h"
#include "nn/optimizer.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// An architecture, and the edge features that it reads.
struct Kind {
  Kind(spec::Architecture of, EncoderInput of_edges = {})  // NOLINT(google-explicit-constructor)
      : architecture(of), edge(std::move(of_edges)) {}
  operator spec::Architecture() const { return architecture; }  // NOLINT(google-explicit-constructor)
  std::string name() const {
    return std::string(spec::kArchitectureNames.Name(architecture)) + (edge.float_columns > 0 ? ", floats of edges"
                                                                       : edge.categories.empty()
                                                                           ? ""
                                                                           : ", categories of edges");
  }
  Plan With(Plan plan) const {
    plan.edge_columns = edge.float_columns > 0 ? edge.float_columns : std::ssize(edge.categories);
    plan.edge_categories = edge.categories.empty() ? 0 : edge.categories.front();
    return plan;
  }
  spec::Architecture architecture;
  EncoderInput edge;
};

NodeModelOptions Options(const Kind& kind, int64_t in = 6, int64_t hidden = 8, int64_t layers = 2,
                         double dropout = 0.3) {
  const spec::Architecture architecture = kind;
  return {.model = {.architecture = architecture,
                    .level = spec::ModelLevel::kNode,
                    .hidden_channels = hidden,
                    .num_layers = layers,
                    .dropout = dropout,
                    .heads = architecture == spec::Architecture::kGatv2 && hidden % 2 == 0 ? 2 : 1,
                    .norm = spec::Norm::kNone},
          .in_channels = in,
          .num_outputs = kBlockClasses,
          .edge = kind.edge};
}

void ToDouble(NodeModel& model) {
  for (const NamedTensor& t : model.tensors().All()) Tensor(t.value).set_data(t.value.detach().to(at::kDouble));
}

const Kind kAll[] = {spec::Architecture::kSage,
                     spec::Architecture::kGcn,
                     spec::Architecture::kGin,
                     spec::Architecture::kGatv2,
                     {spec::Architecture::kGatv2, {.float_columns = 3}},
                     {spec::Architecture::kGatv2, {.categories = {5, 5}}},
                     {spec::Architecture::kGine, {.float_columns = 3}},
                     {spec::Architecture::kGine, {.categories = {5, 5}}},
                     // These have more combinations of categories than one table holds.
                     {spec::Architecture::kGine, {.categories = {5, 5, 5}}}};

struct Shape {
  const char* why;
  Plan plan;
  int64_t layers, hidden;
};
const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> kShapes{
      {"sampled", {.real = {5, 9, 20}, .padded = {5, 9, 20}}, 2, 8},
      {"sampled, weighted", {.real = {5, 9, 20}, .padded = {5, 9, 20}, .weighted = true}, 2, 8},
      {"sampled, sparse", {.real = {5, 9, 20}, .padded = {5, 9, 20}, .sparse = true}, 2, 8},
      {"sampled, padded", {.real = {5, 9, 20}, .padded = {8, 12, 24}, .padded_edges = 90, .weighted = true}, 2, 8},
      {"one layer", {.real = {6, 14}, .padded = {6, 14}}, 1, 8},
      {"three layers", {.real = {4, 6, 9, 15}, .padded = {4, 6, 9, 15}}, 3, 8},
      {"the last hop found nobody", {.real = {5, 9, 0}, .padded = {5, 9, 0}}, 2, 8},
      {"whole, wide input", {.real = {25}, .padded = {25}, .whole = true, .width = 40}, 2, 5},
      {"whole, narrow input", {.real = {25}, .padded = {25}, .whole = true, .width = 3}, 2, 12},
      {"whole, sparse, weighted",
       {.real = {25}, .padded = {25}, .whole = true, .width = 40, .sparse = true, .weighted = true},
       3,
       5},
      {"whole, sparse, narrow",
       {.real = {25}, .padded = {25}, .whole = true, .width = 4, .sparse = true, .self_loops = false},
       2,
       16},
  };
  return kShapes;
}

TEST(NodeModel, ForwardIsTheFormula) {
  const at::NoGradGuard no_grad;
  for (const Kind& architecture : kAll) {
    for (const Shape& shape : Shapes()) {
      const NodeModelOptions options = Options(architecture, shape.plan.width, shape.hidden, shape.layers);
      for (uint64_t seed = 0; seed < 5; ++seed) {
        const auto model = MakeNodeModel(options, seed, at::kCPU);
        const NodeBlock block = MakeBlock(architecture.With(shape.plan), shape.layers, seed);
        const Tensor got = model->Forward(block, Mode::kEval).to(at::kDouble);
        const Tensor want = formula::Reference(*model, options, block);
        EXPECT_TRUE(got.allclose(want, 1e-5, 1e-5)) << architecture.name() << ", " << shape.why << ", seed " << seed
                                                    << ": " << (got - want).abs().max().item<double>();
      }
    }
  }
}

// A batcher may compute the means of the first layer beforehand (data/batching/block_batch.h).
TEST(NodeModel, SumsThatAreMadeBeforehandChangeNothing) {
  for (const int64_t layers : {2, 3}) {
    const NodeModelOptions options = Options(spec::Architecture::kSage, 6, 8, layers);
    const std::vector<int64_t> segments(static_cast<size_t>(layers) + 1, 9);
    const NodeBlock block = MakeBlock({.real = segments, .padded = segments}, layers, 4);
    const int64_t rows = block.row_ends[static_cast<size_t>(layers) - 1];
    NodeBlock made = block;
    made.row_ends.pop_back();
    made.features =
        at::cat({SegmentMean(block.features, block.offsets, block.sources), block.features.narrow(0, 0, rows)}, 1);
    made.offsets = block.offsets.narrow(0, 0, block.row_ends[static_cast<size_t>(layers) - 2] + 1);
    made.row_keys = block.row_keys.narrow(0, 0, rows);
    const auto model = MakeNodeModel(options, 4, at::kCPU), other = MakeNodeModel(options, 4, at::kCPU);
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      const Tensor want = model->Forward(block, mode), got = other->Forward(made, mode);
      EXPECT_TRUE(got.allclose(want, 1e-6, 1e-6)) << layers << " layers";
      (want * want).sum().backward();
      (got * got).sum().backward();
    }
    const auto a = model->tensors().parameters(), b = other->tensors().parameters();
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(a[i].value.grad().allclose(b[i].value.grad(), 1e-5, 1e-5)) << a[i].name;
    }
  }
}
TEST(NodeModel, LayerWiseInferenceEqualsForward) {
  const at::NoGradGuard no_grad;
  for (const Kind& architecture : kAll) {
    for (const Shape& shape : Shapes()) {
      for (const size_t parts : {0, 1, 2, 3}) {
        if (!shape.plan.whole) continue;
        NodeModelOptions options = Options(architecture, shape.plan.width, shape.hidden, shape.layers);
        options.model.residual = parts > 0;
        options.model.norm = parts > 0 ? spec::Norm::kLayer : spec::Norm::kNone;
        options.model.jumping_knowledge =
            std::array{spec::JumpingKnowledge::kLast, spec::JumpingKnowledge::kCat, spec::JumpingKnowledge::kMax,
                       spec::JumpingKnowledge::kLast}[parts];
        const auto model = MakeNodeModel(options, 4, at::kCPU);
        const NodeBlock block = MakeBlock(architecture.With(shape.plan), shape.layers, 8);
        const int64_t rows = block.row_ends[0], step = 7;
        std::vector<LayerWiseModel::Chunk> chunks;
        std::vector<Tensor> degrees;
        for (int64_t begin = 0; begin < rows; begin += step) {
          const Tensor offsets = block.offsets.slice(0, begin, std::min(rows, begin + step) + 1);
          const auto first = offsets[0].item<int64_t>(), last = offsets[-1].item<int64_t>();
          LayerWiseModel::Chunk chunk{.first_row = begin,
                                      .offsets = offsets - first,
                                      .sources = block.sources.slice(0, first, last),
                                      .edge_weights = {},
                                      .edge_features = {},
                                      .edge_code = {},
                                      .inverse_sqrt_degrees = {}};
          if (block.edge_features.defined()) chunk.edge_features = block.edge_features.slice(0, first, last);
          if (block.edge_weights.defined()) chunk.edge_weights = block.edge_weights.slice(0, first, last);
          degrees.push_back(model->InverseSqrtDegrees(chunk));
          chunks.push_back(std::move(chunk));
        }
        Tensor h, joined;
        for (int64_t l = 0; l < shape.layers; ++l) {
          std::vector<Tensor> projected, outputs;
          for (LayerWiseModel::Chunk& chunk : chunks) {
            if (architecture == spec::Architecture::kGcn) chunk.inverse_sqrt_degrees = at::cat(degrees);
            const int64_t begin = chunk.first_row, end = begin + chunk.offsets.size(0) - 1;
            LayerWiseModel::InputRows in;
            if (l > 0) {
              in.dense = h.slice(0, begin, end);
            } else if (block.features.defined()) {
              in.dense = block.features.slice(0, begin, end);
            } else {
              const Tensor offsets = block.feature_offsets.slice(0, begin, end + 1);
              const auto first = offsets[0].item<int64_t>(), last = offsets[-1].item<int64_t>();
              in.feature_offsets = offsets - first;
              in.feature_columns = block.feature_columns.slice(0, first, last);
              in.feature_values = block.feature_values.slice(0, first, last);
            }
            projected.push_back(model->Project(l, in));
            EXPECT_EQ(projected.back().size(1), model->projected_width(l));
          }
          const Tensor all = at::cat(projected);
          for (const LayerWiseModel::Chunk& chunk : chunks) {
            const int64_t begin = chunk.first_row, end = begin + chunk.offsets.size(0) - 1;
            outputs.push_back(model->Combine(l, all, chunk, l > 0 ? h.slice(0, begin, end) : Tensor()));
          }
          h = at::cat(outputs);
          if (model->joins()) joined = model->JoinOutput(l, joined, h);
        }
        if (model->joins()) h = joined;
        EXPECT_EQ(model->joins(), parts == 1 || parts == 2);
        const Tensor want = model->Forward(block, Mode::kEval);
        EXPECT_TRUE(h.allclose(want, 1e-5, 1e-5)) << architecture.name() << ", " << parts << ", " << shape.why << ": "
                                                  << (h - want).abs().max().item<float>();
      }
    }
  }
}

TEST(NodeModel, OnePaddedStepAgreesWithTheExactOne) {
  const struct {
    const char* why;
    Plan exact, padded;
  } kCases[] = {
      {"every segment grows",
       {.real = {8, 20, 50}, .padded = {8, 20, 50}, .weighted = true},
       {.real = {8, 20, 50}, .padded = {11, 33, 64}, .padded_edges = 200, .weighted = true}},
      {"sparse rows",
       {.real = {8, 20, 50}, .padded = {8, 20, 50}, .width = 30, .sparse = true},
       {.real = {8, 20, 50}, .padded = {9, 21, 51}, .padded_edges = 200, .width = 30, .sparse = true}},
      {"only the edges and the last segment grow",
       {.real = {8, 20, 50}, .padded = {8, 20, 50}},
       {.real = {8, 20, 50}, .padded = {8, 20, 51}, .padded_edges = 150}},
  };
  void (*const kParts[])(spec::ModelOptions&) = {[](spec::ModelOptions&) {},
                                                 [](spec::ModelOptions& m) {
                                                   m.norm = spec::Norm::kBatch;
                                                   m.jumping_knowledge = spec::JumpingKnowledge::kCat;
                                                   m.residual = true;
                                                 },
                                                 [](spec::ModelOptions& m) {
                                                   m.norm = spec::Norm::kLayer;
                                                   m.input_dropout = 0.3;
                                                   m.normalize_features = true;
                                                   if (TraitsOf(m.architecture).has_aggregation) {
                                                     m.aggregation = spec::Aggregation::kMax;
                                                   }
                                                   m.jumping_knowledge = spec::JumpingKnowledge::kMax;
                                                 }};
  for (const Kind& architecture : kAll) {
    for (size_t n = 0; n < std::size(kCases) * std::size(kParts); ++n) {
      const auto& c = kCases[n % std::size(kCases)];
      NodeModelOptions options = Options(architecture, c.exact.width);
      kParts[n / std::size(kCases)](options.model);
      SCOPED_TRACE(testing::Message() << "parts " << n / std::size(kCases));
      double losses[2];
      std::vector<NamedTensor> parameters[2];
      for (int i = 0; i < 2; ++i) {
        const auto model = MakeNodeModel(options, 3, at::kCPU);
        const NodeBlock block = MakeBlock(architecture.With(i == 0 ? c.exact : c.padded), 2, 11);
        const LossTerms terms =
            ComputeLoss(spec::Loss::kCrossEntropy, model->Forward(block, Mode::kTrain), block.labels);
        terms.mean.backward();
        losses[i] = terms.mean.item<double>();
        parameters[i] = model->tensors().parameters();
      }
      EXPECT_NEAR(losses[0], losses[1], 1e-5 * std::abs(losses[0])) << c.why;
      EXPECT_GT(losses[0], 0) << c.why;
      double largest = 0;
      for (const NamedTensor& p : parameters[0]) largest = std::max(largest, p.value.grad().abs().max().item<double>());
      for (size_t p = 0; p < parameters[0].size(); ++p) {
        const Tensor padded = parameters[1][p].value.grad(), exact = parameters[0][p].value.grad();
        // The gradient of a value that batch norm cancels is rounding alone.
        const double apart =
            std::min(RelativeDifference(padded, exact), (padded - exact).abs().max().item<double>() / largest);
        EXPECT_LT(apart, 1e-5) << architecture.name() << ", " << c.why << ": gradient of " << parameters[0][p].name;
      }
    }
  }
}

TEST(NodeModel, FiftyPaddedStepsAgreeInFloat64) {
  for (const Kind& architecture : kAll) {
    const NodeModelOptions options = Options(architecture);
    const auto train = [&](bool padded) {
      const auto model = MakeNodeModel(options, 5, at::kCPU);
      ToDouble(*model);
      Optimizer optimizer({}, model->tensors().parameters());
      for (uint64_t step = 0; step < 50; ++step) {
        const auto more = static_cast<int64_t>(step % 7);
        Plan plan{.real = {6, 10 + more, 30 + 2 * more}, .padded = {}, .weighted = true};
        plan.padded = padded ? std::vector<int64_t>{7, 20, 50} : plan.real;
        plan.padded_edges = padded ? 150 : 0;
        const NodeBlock block = MakeBlock(architecture.With(plan), 2, step, at::kDouble);
        const Tensor loss =
            ComputeLoss(spec::Loss::kCrossEntropy, model->Forward(block, Mode::kTrain), block.labels).mean;
        optimizer.Step(torch::autograd::grad({loss}, optimizer.parameters()));
      }
      return Clone(model->tensors().All());
    };
    const std::vector<NamedTensor> exact = train(false), padded = train(true);
    const std::vector<NamedTensor> start = MakeNodeModel(options, 5, at::kCPU)->tensors().All();
    for (size_t p = 0; p < exact.size(); ++p) {
      EXPECT_LT(RelativeDifference(padded[p].value, exact[p].value), 1e-9) << exact[p].name;
      if (exact[p].name.ends_with(".eps")) continue;  // not trained
      EXPECT_GT(RelativeDifference(start[p].value.to(at::kDouble), exact[p].value), 1e-3) << exact[p].name;
    }
  }
}

TEST(NodeModel, DropoutIsDrawnInTrainingOnly) {
  const at::NoGradGuard no_grad;
  for (const Kind& architecture : kAll) {
    const auto model = MakeNodeModel(Options(architecture), 3, at::kCPU);
    const auto without = MakeNodeModel(Options(architecture, 6, 8, 2, 0), 3, at::kCPU);
    NodeBlock block = MakeBlock(architecture.With({.real = {8, 20, 50}, .padded = {8, 20, 50}}), 2, 1);
    const Tensor eval = model->Forward(block, Mode::kEval), train = model->Forward(block, Mode::kTrain);
    EXPECT_TRUE(eval.equal(without->Forward(block, Mode::kTrain)));
    EXPECT_FALSE(train.equal(eval));
    EXPECT_TRUE(train.equal(model->Forward(block, Mode::kTrain)));
    block.step.fill_(2);
    EXPECT_FALSE(train.equal(model->Forward(block, Mode::kTrain)));
  }
}

TEST(NodeModel, NamesAndShapesAreThoseOfPyG) {
  using Shapes = std::map<std::string, std::vector<int64_t>>;
  const struct {
    Kind architecture;
    int64_t layers;
    Shapes want;
  } kCases[] = {
      {spec::Architecture::kSage,
       3,
       {{"convs.0.lin_l.weight", {8, 6}},
        {"convs.0.lin_l.bias", {8}},
        {"convs.0.lin_r.weight", {8, 6}},
        {"convs.1.lin_l.weight", {8, 8}},
        {"convs.1.lin_l.bias", {8}},
        {"convs.1.lin_r.weight", {8, 8}},
        {"convs.2.lin_l.weight", {3, 8}},
        {"convs.2.lin_l.bias", {3}},
        {"convs.2.lin_r.weight", {3, 8}}}},
      {spec::Architecture::kGcn,
       2,
       {{"convs.0.bias", {8}}, {"convs.0.lin.weight", {8, 6}}, {"convs.1.bias", {3}}, {"convs.1.lin.weight", {3, 8}}}},
      {spec::Architecture::kGcn, 1, {{"convs.0.bias", {3}}, {"convs.0.lin.weight", {3, 6}}}},
      {{spec::Architecture::kGine, {.float_columns = 4}},
       1,
       {{"convs.0.eps", {1}},
        {"convs.0.lin.weight", {6, 4}},
        {"convs.0.lin.bias", {6}},
        {"convs.0.nn.lins.0.weight", {3, 6}},
        {"convs.0.nn.lins.0.bias", {3}},
        {"convs.0.nn.lins.1.weight", {3, 3}},
        {"convs.0.nn.lins.1.bias", {3}}}},
      {{spec::Architecture::kGatv2, {.categories = {5}}},
       1,
       {{"convs.0.att", {1, 2, 3}},
        {"convs.0.bias", {3}},
        {"convs.0.lin_l.weight", {6, 6}},
        {"convs.0.lin_l.bias", {6}},
        {"convs.0.lin_r.weight", {6, 6}},
        {"convs.0.lin_r.bias", {6}},
        {"convs.0.lin_edge.weight", {6, 8}},
        {"edge_encoder.embeddings.0.weight", {5, 8}}}},
  };
  for (const auto& c : kCases) {
    const auto model = MakeNodeModel(Options(c.architecture, 6, 8, c.layers), 1, at::kCPU);
    Shapes got;
    for (const NamedTensor& t : model->tensors().All()) got[t.name] = t.value.sizes().vec();
    EXPECT_EQ(got, c.want) << c.architecture.name();
  }
}

TEST(NodeModel, WeightsAreDrawnAsPyGDoes) {
  const struct {
    spec::Architecture architecture;
    const char* name;
    double bound;
  } kCases[] = {
      {spec::Architecture::kSage, "convs.0.lin_l.weight", 1 / std::sqrt(50.0)},
      {spec::Architecture::kSage, "convs.0.lin_l.bias", 1 / std::sqrt(50.0)},
      {spec::Architecture::kSage, "convs.0.lin_r.weight", 1 / std::sqrt(50.0)},
      {spec::Architecture::kGcn, "convs.0.lin.weight", std::sqrt(6.0 / (50 + 200))},
      {spec::Architecture::kGcn, "convs.0.bias", 0},
      {spec::Architecture::kGatv2, "convs.0.att", std::sqrt(6.0 / (2 + 100))},
      {spec::Architecture::kGatv2, "convs.0.bias", 0},
      {spec::Architecture::kGatv2, "convs.0.lin_l.weight", std::sqrt(6.0 / (50 + 200))},
      {spec::Architecture::kGatv2, "convs.0.lin_l.bias", 1 / std::sqrt(50.0)},
      {spec::Architecture::kGatv2, "convs.0.lin_r.bias", 1 / std::sqrt(50.0)},
  };
  for (const auto& c : kCases) {
    const auto one = MakeNodeModel(Options(c.architecture, 50, 200), 1, at::kCPU);
    const auto same = MakeNodeModel(Options(c.architecture, 50, 200), 1, at::kCPU);
    const auto other = MakeNodeModel(Options(c.architecture, 50, 200), 2, at::kCPU);
    const Tensor value = formula::Parameter(*one, c.name).detach();
    EXPECT_LE(value.abs().max().item<double>(), c.bound + 1e-7) << c.name;
    EXPECT_GE(value.abs().max().item<double>(), 0.9 * c.bound) << c.name;
    EXPECT_TRUE(value.equal(formula::Parameter(*same, c.name))) << c.name;
    EXPECT_EQ(value.equal(formula::Parameter(*other, c.name)), c.bound == 0) << c.name;
  }
}

TEST(NodeModel, DescribesWhatPyGNeeds) {
  const auto model = MakeNodeModel(Options(spec::Architecture::kSage), 1, at::kCPU);
  EXPECT_EQ(nlohmann::json::parse(model->Describe()),
            nlohmann::json::parse(R"({"architecture": "sage", "in_channels": 6,
    "hidden_channels": 8, "num_layers": 2, "out_channels": 3, "dropout": 0.3, "level": "node", "input_dropout": 0.0,
    "heads": 1, "aggregation": "mean", "norm": "none", "residual": false, "jumping_knowledge": "last", "normalize_features": false,
    "embedded_nodes": 0})"));
}

TEST(NodeModel, DescribesInputsThatAreMadeOfTheEdges) {
  NodeModelOptions options = Options(spec::Architecture::kSage);
  const auto described = [&](spec::NodeInputs inputs) {
    options.model.node_inputs = inputs;
    const nlohmann::json description = nlohmann::json::parse(MakeNodeModel(options, 1, at::kCPU)->Describe());
    return description.contains("node_inputs") ? description["node_inputs"].get<std::string>() : std::string();
  };
  EXPECT_EQ(described(spec::NodeInputs::kDegree), "degree");
  EXPECT_EQ(described(spec::NodeInputs::kConstant), "constant");
  EXPECT_EQ(described(spec::NodeInputs::kFeatures), "");
  EXPECT_EQ(described(spec::NodeInputs::kAuto), "");
}

TEST(NodeModel, BlocksOfAnotherDepthAreRefused) {
  const auto model = MakeNodeModel(Options(spec::Architecture::kSage), 1, at::kCPU);
  NodeBlock block = MakeBlock({.real = {4, 6, 9}, .padded = {4, 6, 9}}, 2, 1);
  block.row_ends.pop_back();
  EXPECT_THROW(model->Forward(block, Mode::kEval), c10::Error);
  EXPECT_THROW(MakeNodeModel(Options(spec::Architecture::kGine), 1, at::kCPU), c10::Error)
      << "without features of edges";
}

}  // namespace
}  // namespace permafrost::nn
