#include "operator_cases.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "nn/loss.h"
#include "nn/ops/batch_norm.h"
#include "nn/ops/dropout.h"
#include "nn/ops/edge_region.h"
#include "nn/ops/gine_layer.h"
#include "nn/ops/graph_conv.h"
#include "nn/ops/linear.h"
#include "nn/ops/lowering.h"
#include "nn/ops/rows_by_index.h"
#include "nn/ops/segment_ops.h"
#include "nn/optimizer.h"

namespace permafrost::nn {
namespace {

using at::Tensor;
using Forward = std::function<Tensor(const std::vector<Tensor>& leaves)>;

// The analyzer loses what a std::function owns.
// NOLINTBEGIN(clang-analyzer-cplusplus.NewDeleteLeaks)

// The sizes of the shipped ZINC sample's batches of 32.
constexpr int64_t kNodes = 741, kEdges = 1590, kGraphs = 32, kEdgeKinds = 4, kAtomKinds = 28;

Tensor LeafOf(const Tensor& t) { return t.detach().clone().set_requires_grad(true); }
Tensor Uniform(int64_t below, int64_t count) { return at::randint(0, below, {count}, at::kLong); }
Tensor Sorted(const Tensor& t) { return std::get<0>(at::sort(t)); }
std::string Shape(std::initializer_list<int64_t> sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

// Forward, and the gradients of all leaves for a fixed gradient of the output.
std::function<void()> StepOf(const std::vector<Tensor>& values, const Forward& forward) {
  std::vector<Tensor> leaves;
  leaves.reserve(values.size());
  for (const Tensor& value : values) leaves.push_back(LeafOf(value));
  const Tensor output = forward(leaves).detach();
  const Tensor grad = output.dim() == 0 ? at::ones_like(output) : at::randn_like(output);
  return [leaves, forward, grad] { torch::autograd::grad({forward(leaves)}, leaves, {grad}); };
}

OperatorCase Both(std::string name, std::string shape, const std::vector<Tensor>& leaves, const Forward& fused,
                  const Forward& plain) {
  return {std::move(name), std::move(shape), StepOf(leaves, fused), StepOf(leaves, plain)};
}

OperatorCase GineCase(int64_t width) {
  const int64_t rows = kNodes + 1;
  GineEdges edges;
  edges.source = Uniform(kNodes, kEdges);
  edges.target = Sorted(Uniform(kNodes, kEdges));
  edges.index = IndexEdges(edges.source, edges.target, rows);
  edges.code = Uniform(kEdgeKinds, kEdges).to(at::kInt);
  const GineDropout dropout{.step = at::zeros({1}, at::kLong), .key = {}, .p = 0};
  const Tensor real_rows = at::full({1}, kNodes, at::kLong);
  const GineWeights state{.w1 = {},
                          .b1 = {},
                          .w2 = {},
                          .b2 = {},
                          .norm_weight = {},
                          .norm_bias = {},
                          .running_mean = at::zeros({width}),
                          .running_var = at::ones({width}),
                          .batches_tracked = at::zeros({}, at::kLong)};
  const auto with = [=](auto* layer) {
    return [=](const std::vector<Tensor>& leaf) {
      GineEdges now = edges;
      now.rows = leaf[1];
      const GineWeights w{leaf[2],
                          leaf[3],
                          leaf[4],
                          leaf[5],
                          leaf[6],
                          leaf[7],
                          state.running_mean,
                          state.running_var,
                          state.batches_tracked};
      return layer(leaf[0], now, real_rows, w, dropout, BatchNormOptions());
    };
  };
  const Tensor weight = at::randn({width, width}) / 8, vector = at::randn({width});
  return Both(
      "gine_layer_" + std::to_string(width), Shape({kNodes, width}) + ", " + std::to_string(kEdges) + " edges",
      {at::randn({rows, width}), at::randn({kEdgeKinds, width}), weight, vector, weight, vector, vector, vector},
      with(&GineLayer), with(&GineLayerPlain));
}

OperatorCase MlpCase(int64_t rows, int64_t width) {
  const Tensor weight = at::randn({width, width}) / 8, vector = at::randn({width});
  return Both(
      "mlp_" + std::to_string(rows) + "x" + std::to_string(width), Shape({rows, width, width, width}),
      {at::randn({rows, width}), weight, vector, weight, vector},
      [](const std::vector<Tensor>& leaf) { return Mlp(leaf[0], leaf[1], leaf[2], leaf[3], leaf[4]); },
      [](const std::vector<Tensor>& leaf) {
        return at::addmm(leaf[4], at::addmm(leaf[2], leaf[0], leaf[1].t()).relu(), leaf[3].t());
      });
}

// Beside PyTorch's as its autocast casts them: inputs and weights of each linear map.
OperatorCase RoundedMlpCase(int64_t rows, int64_t width) {
  const Tensor weight = at::randn({width, width}) / 8, vector = at::randn({width});
  const auto cast = [](const Tensor& t) { return t.to(at::kBFloat16); };
  return Both(
      "mlp_" + std::to_string(rows) + "x" + std::to_string(width) + "_bfloat16", Shape({rows, width, width, width}),
      {at::randn({rows, width}), weight, vector, weight, vector},
      [](const std::vector<Tensor>& leaf) {
        const LoweringScope scope(spec::Lowering::kAuto, spec::Precision::kBfloat16);
        return Mlp(leaf[0], leaf[1], leaf[2], leaf[3], leaf[4]);
      },
      [=](const std::vector<Tensor>& leaf) {
        const Tensor hidden = at::linear(cast(leaf[0]), cast(leaf[1]), cast(leaf[2])).relu();
        return at::linear(hidden, cast(leaf[3]), cast(leaf[4])).to(at::kFloat);
      });
}

OperatorCase RowLinearCase(int64_t rows, int64_t in, int64_t out) {
  const std::string shape = Shape({rows, in, out});
  return Both(
      "row_linear_" + std::to_string(rows) + "x" + std::to_string(in) + "x" + std::to_string(out), shape,
      {at::randn({rows, in}), at::randn({out, in}) / 8, at::randn({out})},
      [](const std::vector<Tensor>& leaf) { return RowLinear(leaf[0], leaf[1], leaf[2], /*relu=*/true); },
      [](const std::vector<Tensor>& leaf) { return at::linear(leaf[0], leaf[1], leaf[2]).relu(); });
}

OperatorCase RowNormCase(int64_t width) {
  Tensor mean = at::zeros({width}), var = at::ones({width});
  return Both(
      "row_norm", Shape({kNodes, width}), {at::randn({kNodes, width}), at::rand({width}) + 0.5, at::randn({width})},
      [=](const std::vector<Tensor>& leaf) mutable {
        return RowBatchNorm(leaf[0], leaf[1], leaf[2], mean, var, BatchNormOptions(), /*relu=*/true);
      },
      [=](const std::vector<Tensor>& leaf) {
        return at::batch_norm(leaf[0], leaf[1], leaf[2], mean, var, /*training=*/true, 0.1, 1e-5, false).relu();
      });
}

// Regions like those of programs. Index 0 is the source of an edge, index 1 its kind.
struct NamedRegion {
  std::string name;
  EdgeRegion region;
  std::vector<int64_t> rows;  // of each input; 0: one row for all
};

// PyG's GINEConv: the sum of relu(x_j + e), plus x_i.
NamedRegion GineRegion(int32_t width) {
  using enum RegionOp;
  return {"gine",
          {.steps = {{.op = kGather, .input = 0, .index = 0, .width = width, .level = RegionLevel::kEdge},
                     {.op = kGather, .input = 1, .index = 1, .width = width, .level = RegionLevel::kEdge},
                     {.op = kAdd, .a = 0, .b = 1, .width = width, .x = 1, .level = RegionLevel::kEdge},
                     {.op = kRelu, .a = 2, .width = width, .level = RegionLevel::kEdge},
                     {.op = kSum, .a = 3, .width = width, .level = RegionLevel::kTarget},
                     {.op = kTarget, .input = 2, .width = width, .level = RegionLevel::kTarget},
                     {.op = kAdd, .a = 4, .b = 5, .width = width, .x = 1, .level = RegionLevel::kTarget}},
           .outputs = {6},
           .num_inputs = 3,
           .num_indices = 2},
          {kNodes, kEdgeKinds, kNodes}};
}

// PyG's GATv2Conv: softmax over a target's edges of a * leaky_relu(x_j + x_i), with which x_j is weighted.
NamedRegion Gatv2Region(int32_t width, int32_t heads) {
  using enum RegionOp;
  return {"gatv2",
          {.steps = {{.op = kGather, .input = 0, .index = 0, .width = width, .level = RegionLevel::kEdge},
                     {.op = kTarget, .input = 1, .width = width, .level = RegionLevel::kTarget},
                     {.op = kExpand, .a = 1, .width = width, .level = RegionLevel::kEdge},
                     {.op = kAdd, .a = 0, .b = 2, .width = width, .x = 1, .level = RegionLevel::kEdge},
                     {.op = kLeakyRelu, .a = 3, .width = width, .x = 0.2, .level = RegionLevel::kEdge},
                     {.op = kShared, .input = 2, .width = width, .level = RegionLevel::kShared},
                     {.op = kMul, .a = 4, .b = 5, .width = width, .level = RegionLevel::kEdge},
                     {.op = kRowSum, .a = 6, .width = heads, .group = width / heads, .level = RegionLevel::kEdge},
                     {.op = kMax, .a = 7, .width = heads, .level = RegionLevel::kTarget},
                     {.op = kDetach, .a = 8, .width = heads, .level = RegionLevel::kTarget},
                     {.op = kExpand, .a = 9, .width = heads, .level = RegionLevel::kEdge},
                     {.op = kSub, .a = 7, .b = 10, .width = heads, .x = 1, .level = RegionLevel::kEdge},
                     {.op = kExp, .a = 11, .width = heads, .level = RegionLevel::kEdge},
                     {.op = kSum, .a = 12, .width = heads, .level = RegionLevel::kTarget},
                     {.op = kScale, .a = 13, .width = heads, .x = 1, .y = 1e-16, .level = RegionLevel::kTarget},
                     {.op = kExpand, .a = 14, .width = heads, .level = RegionLevel::kEdge},
                     {.op = kDiv, .a = 12, .b = 15, .width = heads, .level = RegionLevel::kEdge},
                     {.op = kMul, .a = 0, .b = 16, .width = width, .level = RegionLevel::kEdge},
                     {.op = kSum, .a = 17, .width = width, .level = RegionLevel::kTarget}},
           .outputs = {18},
           .num_inputs = 3,
           .num_indices = 1},
          {kNodes, kNodes, 0}};
}

OperatorCase RegionCase(const NamedRegion& of, int32_t width) {
  const Tensor source = Uniform(kNodes, kEdges), target = Sorted(Uniform(kNodes, kEdges));
  RegionEdges edges;
  edges.targets = SegmentsOf(target, kNodes);
  edges.indices = {source, Uniform(kEdgeKinds, kEdges)};
  edges.indices.resize(static_cast<size_t>(of.region.num_indices));
  edges.index_segments = {SegmentsOf(source, kNodes)};
  std::vector<Tensor> leaves;
  leaves.reserve(of.rows.size());
  for (const int64_t rows : of.rows) leaves.push_back(rows == 0 ? at::randn({width}) : at::randn({rows, width}));
  return Both(
      "edge_region_" + of.name + "_" + std::to_string(width),
      Shape({kNodes, width}) + ", " + std::to_string(kEdges) + " edges", leaves,
      [=](const std::vector<Tensor>& leaf) { return RunEdgeRegion(of.region, leaf, edges)[0]; },
      [=](const std::vector<Tensor>& leaf) {
        return EdgeRegionPlain(of.region, leaf, target, kNodes, edges.indices)[0];
      });
}

OperatorCase NormCase(int64_t width) {
  Tensor mean = at::zeros({width}), var = at::ones({width});
  const Tensor real_rows = at::full({1}, kNodes, at::kLong);
  return Both(
      "masked_batch_norm_relu", Shape({kNodes, width}),
      {at::randn({kNodes, width}), at::rand({width}) + 0.5, at::randn({width})},
      [=](const std::vector<Tensor>& leaf) mutable {
        return MaskedBatchNormRelu(leaf[0], real_rows, leaf[1], leaf[2], mean, var);
      },
      [=](const std::vector<Tensor>& leaf) {
        return at::batch_norm(leaf[0], leaf[1], leaf[2], mean, var, /*training=*/true, 0.1, 1e-5, false).relu();
      });
}

OperatorCase PoolCase(int64_t width) {
  const Tensor graph = Sorted(Uniform(kGraphs, kNodes));
  const Tensor sizes = at::bincount(graph, {}, kGraphs).clamp_min(1).unsqueeze(1);
  return Both(
      "pool", Shape({kNodes, width}) + " to " + std::to_string(kGraphs), {at::randn({kNodes, width})},
      [=](const std::vector<Tensor>& leaf) { return PoolRows(leaf[0], graph, kGraphs, spec::Pooling::kMean); },
      [=](const std::vector<Tensor>& leaf) {
        return at::zeros({kGraphs, width}).index_add(0, graph, leaf[0]) / sizes;
      });
}

// columns categorical columns, as ZINC's one or ogbg-molhiv's nine.
OperatorCase EmbeddingCase(int64_t columns, int64_t width) {
  std::vector<Tensor> features, tables;
  for (int64_t c = 0; c < columns; ++c) {
    features.push_back(Uniform(kAtomKinds, kNodes));
    tables.push_back(at::randn({kAtomKinds, width}));
  }
  const Tensor all = at::stack(features, 1);
  return Both(
      "embedding_sum_" + std::to_string(columns), Shape({kNodes, columns, width}), tables,
      [=](const std::vector<Tensor>& leaf) { return EmbeddingSum(all, leaf); },
      [=](const std::vector<Tensor>& leaf) {
        Tensor sum = at::embedding(leaf[0], features[0]);
        for (size_t c = 1; c < leaf.size(); ++c) sum = sum + at::embedding(leaf[c], features[c]);
        return sum;
      });
}

// The neighbours of `rows` rows, ten each on average, among six times as many.
OperatorCase SegmentCase(bool mean, int64_t rows, int64_t width) {
  const int64_t entries = 10 * rows, all = 6 * rows;
  const Tensor targets = Sorted(Uniform(rows, entries)), sources = Uniform(all, entries);
  const Tensor counts = at::bincount(targets, {}, rows);
  const Tensor offsets = at::cat({at::zeros({1}, at::kLong), counts.cumsum(0)});
  return Both(
      mean ? "segment_mean" : "segment_sum", Shape({entries, width}) + " to " + std::to_string(rows),
      {at::randn({all, width})},
      [=](const std::vector<Tensor>& leaf) {
        return mean ? SegmentMean(leaf[0], offsets, sources) : SegmentSum(leaf[0], offsets, sources, {});
      },
      [=](const std::vector<Tensor>& leaf) {
        const Tensor sum = at::zeros({rows, width}).index_add(0, targets, leaf[0].index_select(0, sources));
        return mean ? sum / counts.clamp_min(1).unsqueeze(1) : sum;
      });
}

// A layer of GraphSAGE on ten neighbours of each of `rows` rows, or, with a norm, of GCN on a whole graph.
OperatorCase ConvCase(bool norm, int64_t rows, int64_t width) {
  const int64_t entries = 10 * rows, all = norm ? rows : 6 * rows;
  const Tensor counts = at::bincount(Uniform(rows, entries), {}, rows);
  ConvEdges edges;
  edges.offsets = at::cat({at::zeros({1}, at::kLong), counts.cumsum(0)});
  edges.sources = Uniform(all, entries);
  edges.transpose = TransposeCsr(edges.offsets, edges.sources, all);
  edges.scale = MeanScale(edges.offsets, at::kFloat);
  if (norm) {
    edges.weights = at::rand({entries});
    edges.self = at::rand({rows});
  }
  const Tensor targets = at::repeat_interleave(counts);
  return Both(
      norm ? "graph_conv_norm" : "graph_conv_mean", Shape({entries, width}) + " to " + std::to_string(rows),
      {at::randn({all, width}), at::randn({width, norm ? width : 2 * width}) / 8, at::randn({width})},
      [=](const std::vector<Tensor>& leaf) { return GraphConv(leaf[0], edges, leaf[1], leaf[2], {}, {}); },
      [=](const std::vector<Tensor>& leaf) {
        const Tensor& x = leaf[0];
        Tensor messages = x.index_select(0, edges.sources);
        if (norm) messages = messages * edges.weights.unsqueeze(1);
        Tensor sum = at::zeros({rows, width}).index_add(0, targets, messages);
        if (norm) sum = at::addcmul(sum, x, edges.self.unsqueeze(1));
        sum = sum * edges.scale.unsqueeze(1);
        const Tensor in = norm ? sum : at::cat({sum, x.narrow(0, 0, rows)}, 1);
        return at::addmm(leaf[2], in, leaf[1].t()).relu();
      });
}

// The first layer of GraphSAGE whose rows stand beside the means of their neighbours when they come: [rows, 2 *
// features], of which no gradient is asked.
OperatorCase WideCase(int64_t rows, int64_t features, int64_t width) {
  const Tensor x = at::randn({rows, 2 * features});
  return Both(
      "graph_conv_wide", Shape({rows, 2 * features}) + " to " + std::to_string(width),
      {at::randn({width, 2 * features}) / 8, at::randn({width})},
      [=](const std::vector<Tensor>& leaf) { return GraphConv(x, {}, leaf[0], leaf[1], {}, {}); },
      [=](const std::vector<Tensor>& leaf) { return at::addmm(leaf[1], x, leaf[0].t()).relu(); });
}

// Batches of node2vec's walks in a table that no cache holds, another one each time, beside the same step of single
// operators.
OperatorCase SkipGramCase(int64_t nodes, int64_t seeds, int64_t width) {
  constexpr int64_t kLength = 20, kBatches = 32;
  const WalkLayout layout;
  const Tensor table = at::randn({nodes, width}), real = at::full({1}, seeds, at::kLong);
  const Tensor walks = Uniform(nodes, kBatches * seeds * layout.all() * kLength).view({kBatches, -1, kLength});
  const auto steps = [=](spec::Lowering lowering) {
    return [=, batch = int64_t{0}]() mutable {
      const LoweringScope scope(lowering);
      SkipGram(table, walks[batch++ % kBatches], real, layout);
    };
  };
  return {"skip_gram", std::to_string(seeds) + " seeds, " + Shape({nodes, width}), steps(spec::Lowering::kAuto),
          steps(spec::Lowering::kPlain)};
}

OperatorCase DropoutCase(int64_t width) {
  const Tensor step = at::zeros({1}, at::kLong);
  return Both(
      "dropout", Shape({kNodes, width}), {at::randn({kNodes, width})},
      [=](const std::vector<Tensor>& leaf) { return Dropout(leaf[0], step, {.seed = 1, .layer = 0}, 0.5); },
      [](const std::vector<Tensor>& leaf) { return at::dropout(leaf[0], 0.5, /*train=*/true); });
}

OperatorCase LossCase(const char* name, spec::Loss loss, int64_t rows, int64_t width) {
  Tensor labels = loss == spec::Loss::kCrossEntropy ? Uniform(width, rows).to(at::kFloat).unsqueeze(1)
                                                    : at::rand({rows, width}).round();
  labels[rows - 1].fill_(std::numeric_limits<float>::quiet_NaN());
  return Both(
      name, Shape({rows, width}), {at::randn({rows, width})},
      [=](const std::vector<Tensor>& leaf) { return ComputeLoss(loss, leaf[0], labels).mean; },
      [=](const std::vector<Tensor>& leaf) { return ComputeLossPlain(loss, leaf[0], labels).mean; });
}

// The parameters of GINE with four layers, beside PyTorch's own fused Adam.
OperatorCase AdamCase(int64_t width) {
  struct State {
    std::vector<Tensor> parameters, gradients, first, second, steps;
    Tensor step = at::zeros({}), rate = at::full({}, 1e-3, at::kDouble);
  };
  const auto make = [&] {
    auto state = std::make_shared<State>();
    for (int layer = 0; layer < 4; ++layer) {
      for (const bool is_matrix : {true, false, true, false, false, false}) {
        const Tensor p = is_matrix ? at::randn({width, width}) : at::randn({width});
        state->parameters.push_back(p);
        state->gradients.push_back(at::randn_like(p));
        state->first.push_back(at::zeros_like(p));
        state->second.push_back(at::zeros_like(p));
        state->steps.push_back(state->step);
      }
    }
    return state;
  };
  return {"adam_" + std::to_string(width), "4 layers of " + Shape({width, width}),
          [state = make()] {
            AdamStepAll(state->parameters, state->gradients, state->first, state->second, state->step, state->rate,
                        std::vector<double>(state->parameters.size()), false);
          },
          [state = make()] {
            state->step.add_(1);
            at::_fused_adam_(state->parameters, state->gradients, state->first, state->second, {}, state->steps,
                             state->rate, 0.9, 0.999, 0, 1e-8, /*amsgrad=*/false, /*maximize=*/false, std::nullopt,
                             std::nullopt);
          }};
}

}  // namespace

std::vector<OperatorCase> MakeOperatorCases() {
  at::manual_seed(1);
  std::vector<OperatorCase> cases{GineCase(64), GineCase(256)};
  for (const int64_t rows : {750, 3000}) {
    for (const int64_t width : {64, 128, 256, 300}) {
      cases.push_back(MlpCase(rows, width));
      if (CanRoundFactors()) cases.push_back(RoundedMlpCase(rows, width));
    }
  }
  cases.push_back(RowLinearCase(kNodes, 64, 64));
  cases.push_back(RowLinearCase(kNodes, 256, 256));
  cases.push_back(RowLinearCase(10'000, 64, 64));
  cases.push_back(RowLinearCase(2708, 1433, 64));
  cases.push_back(RowLinearCase(kGraphs, 64, 1));
  cases.push_back(RowNormCase(64));
  cases.push_back(RegionCase(GineRegion(64), 64));
  cases.push_back(RegionCase(Gatv2Region(64, 4), 64));
  cases.push_back(NormCase(64));
  cases.push_back(PoolCase(64));
  cases.push_back(EmbeddingCase(1, 64));
  cases.push_back(EmbeddingCase(9, 64));
  cases.push_back(SegmentCase(false, 3000, 64));
  cases.push_back(SegmentCase(true, 3000, 64));
  cases.push_back(ConvCase(false, 3000, 64));
  cases.push_back(ConvCase(true, 3000, 64));
  cases.push_back(WideCase(2600, 1000, 64));
  cases.push_back(SkipGramCase(100'000, 16, 128));
  cases.push_back(DropoutCase(64));
  cases.push_back(LossCase("regression_loss", spec::Loss::kL1, kGraphs + 1, 1));
  cases.push_back(LossCase("cross_entropy_loss", spec::Loss::kCrossEntropy, 1024, 47));
  cases.push_back(LossCase("binary_cross_entropy_loss", spec::Loss::kBce, 128, 12));
  cases.push_back(AdamCase(64));
  cases.push_back(AdamCase(256));
  return cases;
}
// NOLINTEND(clang-analyzer-cplusplus.NewDeleteLeaks)

}  // namespace permafrost::nn
