// Padding must not change training. Every test compares a padded batch with the least padded one, or with the model's
// formula written out.
#include "nn/models/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/loss.h"
#include "nn/models/relative_difference.h"
#include "nn/ops/lowering.h"
#include "nn/optimizer.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

constexpr float kNoTarget = std::numeric_limits<float>::quiet_NaN();

GraphModelOptions Options(int64_t hidden = 16, int64_t layers = 3, spec::Pooling pooling = spec::Pooling::kMean,
                          double dropout = 0.3) {
  return {.model = {.hidden_channels = hidden, .num_layers = layers, .pooling = pooling, .dropout = dropout},
          .node = {.categories = {7, 3}},
          .edge = {.categories = {4}},
          .num_targets = 2};
}

struct GraphShape {
  int64_t nodes, edges, graphs;
};

// Makes random graphs of the sizes `real`, padded to `padded`. The real part depends on `seed` alone.
GraphSetBatch MakeBatch(GraphShape real, GraphShape padded, uint64_t seed, at::ScalarType type = at::kFloat) {
  at::manual_seed(seed);
  const auto longs = at::TensorOptions().dtype(at::kLong);
  const auto grow = [](const Tensor& t, int64_t rows, double fill) {
    if (t.size(0) == rows) return t;
    std::vector<int64_t> sizes = t.sizes().vec();
    sizes[0] = rows - t.size(0);
    return at::cat({t, at::full(sizes, fill, t.options())});
  };
  GraphSetBatch b;
  b.padded_graphs = padded.graphs;
  const Tensor node0 = at::randint(0, 7, {real.nodes, 1}, longs), node1 = at::randint(0, 3, {real.nodes, 1}, longs);
  b.node_features = grow(at::cat({node0, node1}, 1), padded.nodes, 0);
  b.edge_features = grow(at::randint(0, 4, {real.edges, 1}, longs), padded.edges, 0);
  b.edge_source =
      grow(at::randint(0, real.nodes, {real.edges}, longs), padded.edges, static_cast<double>(padded.nodes - 1));
  b.edge_target = grow(std::get<0>(at::sort(at::randint(0, real.nodes, {real.edges}, longs))), padded.edges,
                       static_cast<double>(padded.nodes - 1));
  b.graph_of_node = grow(std::get<0>(at::sort(at::randint(0, real.graphs, {real.nodes}, longs))), padded.nodes,
                         static_cast<double>(padded.graphs - 1));
  b.labels = grow(at::randn({real.graphs, 2}).to(type), padded.graphs, kNoTarget);
  b.real_nodes = at::full({1}, real.nodes, longs);
  b.real_graphs = at::full({1}, real.graphs, longs);
  b.step = at::full({1}, static_cast<int64_t>(seed), longs);
  return b;
}

void ToDouble(GraphModel& model) {
  for (const NamedTensor& t : model.tensors().All()) {
    if (t.value.is_floating_point()) Tensor(t.value).set_data(t.value.detach().to(at::kDouble));
  }
}

// Returns every architecture with several combinations of parts.
std::vector<std::pair<std::string, GraphModelOptions>> AllOptions() {
  std::vector<std::pair<std::string, GraphModelOptions>> all;
  for (const spec::ModelTraits& traits : spec::kOwnModels) {
    if (!traits.of_graphs) continue;
    GraphModelOptions plain = Options();
    plain.model.architecture = traits.architecture;
    GraphModelOptions joined = plain, virtual_node = plain;
    joined.model.norm = spec::Norm::kLayer;
    joined.model.residual = true;
    joined.model.jumping_knowledge = spec::JumpingKnowledge::kCat;
    joined.edge = {.categories = {}, .float_columns = 0};
    virtual_node.model.virtual_node = true;
    virtual_node.model.norm = spec::Norm::kNone;
    virtual_node.model.jumping_knowledge = spec::JumpingKnowledge::kMax;
    if (traits.has_heads) virtual_node.model.heads = 4;
    const std::string name(traits.name);
    all.emplace_back(name, plain);
    all.emplace_back(name + ", layer norm, residual, cat", joined);
    all.emplace_back(name + ", virtual node, no norm, max", virtual_node);
  }
  return all;
}

std::unique_ptr<GraphModel> Make(const GraphModelOptions& options, uint64_t seed = 3) {
  return MakeGraphModel(options, seed, at::kCPU);
}

TEST(GraphSetModel, OnePaddedStepAgreesWithTheExactOne) {
  const struct {
    const char* why;
    GraphShape real, padded;
  } kCases[] = {{"a common batch", {60, 130, 4}, {71, 150, 7}},
                {"one graph", {9, 16, 1}, {20, 40, 2}},
                {"no edges", {12, 0, 3}, {13, 5, 4}},
                {"a single node", {1, 0, 1}, {2, 0, 2}}};
  for (const auto& [name, options] : AllOptions()) {
    for (const auto& c : kCases) {
      SCOPED_TRACE(name + ", " + c.why);
      const auto exact = Make(options), padded = Make(options);
      const GraphShape least{c.real.nodes + 1, c.real.edges, c.real.graphs + 1};
      const GraphSetBatch batches[] = {MakeBatch(c.real, least, 11), MakeBatch(c.real, c.padded, 11)};
      GraphModel* const models[] = {exact.get(), padded.get()};
      double losses[2];
      for (int i = 0; i < 2; ++i) {
        const LossTerms terms =
            ComputeLoss(spec::Loss::kL1, models[i]->Forward(batches[i], Mode::kTrain), batches[i].labels);
        terms.mean.backward();
        losses[i] = terms.mean.item<double>();
      }
      EXPECT_NEAR(losses[0], losses[1], 1e-5 * std::abs(losses[0]));
      for (size_t p = 0; p < exact->tensors().parameters().size(); ++p) {
        const NamedTensor &a = exact->tensors().parameters()[p], &b = padded->tensors().parameters()[p];
        ASSERT_EQ(a.value.grad().defined(), b.value.grad().defined()) << a.name;
        if (!a.value.grad().defined()) continue;
        EXPECT_LT(RelativeDifference(b.value.grad(), a.value.grad()), 2e-5) << "gradient of " << a.name;
      }
      for (size_t p = 0; p < exact->tensors().buffers().size(); ++p) {
        const NamedTensor &a = exact->tensors().buffers()[p], &b = padded->tensors().buffers()[p];
        EXPECT_LT(RelativeDifference(b.value.to(at::kDouble), a.value.to(at::kDouble)), 1e-5) << a.name;
      }
    }
  }
}

// Each padding edge is a self-loop of the last row. Without a norm, or with a fixed one, that row's sums over this
// many layers overflow any float.
TEST(GraphSetModel, ManyPaddingEdgesInManyLayersLeaveFiniteGradients) {
  for (const spec::Architecture architecture : {spec::Architecture::kGin, spec::Architecture::kGine}) {
    for (const spec::Norm norm : {spec::Norm::kNone, spec::Norm::kBatch}) {
      for (const spec::Lowering lowering : {spec::Lowering::kAuto, spec::Lowering::kPlain}) {
        const LoweringScope scope(lowering);
        GraphModelOptions options = Options(16, 16, spec::Pooling::kMean, /*dropout=*/0);
        options.model.architecture = architecture;
        options.model.norm = norm;
        const auto exact = Make(options), padded = Make(options);
        for (GraphModel* const model : {exact.get(), padded.get()}) {
          if (norm == spec::Norm::kBatch) {
            ASSERT_TRUE(model->tensors().Fix({"norms"}).ok());
          }
        }
        const GraphShape real{20, 40, 2};
        const GraphSetBatch batches[] = {MakeBatch(real, {21, 40, 3}, 11), MakeBatch(real, {22, 20'000, 4}, 11)};
        ComputeLoss(spec::Loss::kL1, exact->Forward(batches[0], Mode::kTrain), batches[0].labels).mean.backward();
        ComputeLoss(spec::Loss::kL1, padded->Forward(batches[1], Mode::kTrain), batches[1].labels).mean.backward();
        for (size_t p = 0; p < exact->tensors().parameters().size(); ++p) {
          const NamedTensor &a = exact->tensors().parameters()[p], &b = padded->tensors().parameters()[p];
          if (!a.value.grad().defined()) continue;
          ASSERT_TRUE(b.value.grad().isfinite().all().item<bool>()) << a.name;
          EXPECT_LT(RelativeDifference(b.value.grad(), a.value.grad()), 1e-4) << a.name;
        }
      }
    }
  }
}

TEST(GraphSetModel, TwentyPaddedStepsAgreeInFloat64) {
  for (const auto& [name, options] : AllOptions()) {
    SCOPED_TRACE(name);
    const auto exact = Make(options, 5), padded = Make(options, 5);
    ToDouble(*exact);
    ToDouble(*padded);
    Optimizer exact_optimizer({}, exact->tensors().parameters()), padded_optimizer({}, padded->tensors().parameters());
    for (uint64_t step = 0; step < 20; ++step) {
      const auto nodes = static_cast<int64_t>(40 + step % 7), edges = static_cast<int64_t>(80 + step % 11);
      const GraphShape real{nodes, edges, 4};
      const auto run = [&](GraphModel& model, Optimizer& optimizer, GraphShape shape) {
        const GraphSetBatch batch = MakeBatch(real, shape, step, at::kDouble);
        const Tensor loss = ComputeLoss(spec::Loss::kMse, model.Forward(batch, Mode::kTrain), batch.labels).mean;
        optimizer.Step(torch::autograd::grad({loss}, optimizer.parameters()));
      };
      run(*exact, exact_optimizer, {nodes + 1, edges, 5});
      run(*padded, padded_optimizer, {64, 100, 8});
    }
    for (size_t p = 0; p < exact->tensors().All().size(); ++p) {
      const NamedTensor a = exact->tensors().All()[p], b = padded->tensors().All()[p];
      // A bias that batch norm cancels moves by rounding alone.
      const double largest = std::max(a.value.abs().max().item<double>(), b.value.abs().max().item<double>());
      if (largest < 1e-6) continue;
      EXPECT_LT(RelativeDifference(b.value.to(at::kDouble), a.value.to(at::kDouble)), 1e-8) << a.name;
    }
  }
}

TEST(GraphSetModel, EvaluationDoesNotSeePaddingAndChangesNothing) {
  for (const spec::Pooling pooling : {spec::Pooling::kMean, spec::Pooling::kSum}) {
    for (auto [name, options] : AllOptions()) {
      SCOPED_TRACE(name);
      options.model.pooling = pooling;
      const auto model = Make(options);
      const at::NoGradGuard no_grad;
      model->Forward(MakeBatch({50, 100, 5}, {51, 100, 6}, 2), Mode::kTrain);
      const std::vector<NamedTensor> before = Clone(model->tensors().All());
      const Tensor exact = model->Forward(MakeBatch({30, 60, 3}, {31, 60, 4}, 9), Mode::kEval).narrow(0, 0, 3);
      const Tensor padded = model->Forward(MakeBatch({30, 60, 3}, {90, 200, 12}, 9), Mode::kEval).narrow(0, 0, 3);
      EXPECT_TRUE(at::allclose(exact, padded, 1e-5, 1e-5)) << spec::kPoolingNames.Name(pooling);
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_TRUE(at::equal(before[i].value, model->tensors().All()[i].value)) << before[i].name;
      }
    }
  }
}

TEST(GraphSetModel, SeedsDecideTheWeights) {
  const auto a = Make(Options(), 1), b = Make(Options(), 1), c = Make(Options(), 2);
  EXPECT_TRUE(at::equal(a->tensors().parameters()[0].value, b->tensors().parameters()[0].value));
  EXPECT_FALSE(at::equal(a->tensors().parameters()[0].value, c->tensors().parameters()[0].value));
}

TEST(GraphSetModel, TakesFloatFeaturesAndNone) {
  for (auto [name, options] : AllOptions()) {
    SCOPED_TRACE(name);
    options.node = {.categories = {}, .float_columns = 5};
    options.edge = {};
    const auto model = Make(options);
    GraphSetBatch batch = MakeBatch({20, 40, 2}, {22, 44, 4}, 1);
    batch.node_features = at::randn({22, 5});
    batch.edge_features = Tensor();
    const Tensor out = model->Forward(batch, Mode::kTrain);
    EXPECT_EQ(out.sizes(), at::IntArrayRef({4, 2}));
    ComputeLoss(spec::Loss::kL1, out, batch.labels).mean.backward();
    for (const NamedTensor& p : model->tensors().parameters()) {
      EXPECT_TRUE(p.value.grad().defined()) << p.name;
    }
  }
}

TEST(GraphSetModel, OtherEdgeFeaturesChangeTheOutputOfModelsThatReadThem) {
  for (const auto& [name, options] : AllOptions()) {
    const bool reads = options.model.architecture == spec::Architecture::kGine ||
                       options.model.architecture == spec::Architecture::kGatv2;
    if (options.edge.categories.empty()) continue;
    const at::NoGradGuard no_grad;
    const auto model = Make(options);
    GraphSetBatch batch = MakeBatch({20, 40, 2}, {22, 44, 4}, 1);
    const Tensor before = model->Forward(batch, Mode::kEval);
    batch.edge_features = 3 - batch.edge_features;
    EXPECT_EQ(at::equal(before, model->Forward(batch, Mode::kEval)), !reads) << name;
  }
}

}  // namespace
}  // namespace permafrost::nn
