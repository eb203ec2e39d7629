// Compares the fused layer with the same layer of PyTorch's operators, on graphs of all sizes and shapes.
#include "nn/ops/gine_layer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "nn/differences.h"
#include "nn/every_instruction_set.h"
#include "nn/leaf.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

struct LayerCase {
  const char* why;
  int64_t nodes, edges, in, hidden, out;
  int64_t codes = 4;  // 0: each edge has a row of its own; -1: GIN, without edge rows
  double p = 0;
  bool has_keys = false;  // whether dropout's masks follow keys of rows
};

const LayerCase kLayerCases[] = {
    {"a common layer", 60, 130, 16, 16, 16},
    {"several chunks of rows", 700, 1500, 64, 64, 64},
    {"widths off the vector's", 45, 99, 13, 37, 21},
    {"a single column", 20, 40, 1, 1, 1},
    {"a wide layer", 150, 320, 130, 70, 100},
    {"no edges", 30, 0, 8, 8, 8},
    {"one node with loops onto itself", 1, 3, 8, 8, 8},
    {"one node alone", 1, 0, 5, 9, 7},
    {"edges with rows of their own", 300, 640, 24, 24, 24, 0},
    {"edges with rows of their own, none of them", 10, 0, 24, 24, 24, 0},
    {"dropout", 260, 500, 32, 32, 32, 7, 0.4},
    {"dropout by keys", 260, 500, 32, 32, 32, 7, 0.4, true},
    {"GIN", 700, 1500, 64, 64, 64, -1},
    {"GIN, widths off the vector's, dropout", 45, 99, 13, 37, 21, -1, 0.3},
    {"GIN, no edges", 30, 0, 8, 8, 8, -1},
};

// The inputs of a layer. Their real part depends on the case alone, and not on the padding.
struct LayerInputs {
  GineEdges edges;
  GineWeights weights;
  GineDropout dropout;
  Tensor x, real_rows, out_grad;
};

LayerInputs MakeLayer(const LayerCase& c, int64_t padding_rows, int64_t padding_edges, at::ScalarType type) {
  at::manual_seed(c.nodes * 1000 + c.edges);
  const auto floats = at::TensorOptions().dtype(type), longs = at::TensorOptions().dtype(at::kLong);
  const int64_t rows = c.nodes + padding_rows, edges = c.edges + padding_edges;
  LayerInputs in;
  const auto grown = [](const Tensor& t, int64_t size, double fill) {
    Tensor all = at::full({size}, fill, t.options());
    all.narrow(0, 0, t.size(0)).copy_(t);
    return all;
  };
  const Tensor source = at::randint(0, c.nodes, {c.edges}, longs);
  const Tensor target = std::get<0>(at::sort(at::randint(0, c.nodes, {c.edges}, longs)));
  const Tensor code = at::randint(0, std::max<int64_t>(1, c.codes), {c.edges}, longs);
  const Tensor x = at::randn({c.nodes, c.in}, floats), out_grad = at::randn({c.nodes, c.out}, floats);
  const Tensor edge_rows = at::randn({c.codes > 0 ? c.codes : c.edges, c.in}, floats);
  in.x = at::full({rows, c.in}, 3, floats);
  in.x.narrow(0, 0, c.nodes).copy_(x);
  in.out_grad = at::full({rows, c.out}, 7, floats);
  in.out_grad.narrow(0, 0, c.nodes).copy_(out_grad);
  in.edges.source = grown(source, edges, static_cast<double>(rows - 1));
  in.edges.target = grown(target, edges, static_cast<double>(rows - 1));
  in.edges.index = IndexEdges(in.edges.source, in.edges.target, rows);
  if (c.codes >= 0) in.edges.rows = edge_rows;
  if (c.codes > 0) {
    in.edges.code = grown(code, edges, 0).to(at::kInt);
  } else if (c.codes == 0 && padding_edges > 0) {
    in.edges.rows = at::cat({edge_rows, at::ones({padding_edges, c.in}, floats)});
  }
  in.weights = {.w1 = at::randn({c.hidden, c.in}, floats) / 4,
                .b1 = at::randn({c.hidden}, floats),
                .w2 = at::randn({c.out, c.hidden}, floats) / 4,
                .b2 = at::randn({c.out}, floats),
                .norm_weight = at::rand({c.out}, floats) + 0.5,
                .norm_bias = at::randn({c.out}, floats),
                .running_mean = at::randn({c.out}, floats),
                .running_var = at::rand({c.out}, floats) + 0.5,
                .batches_tracked = at::zeros({}, longs)};
  in.dropout = {.step = at::full({1}, 17, longs), .key = {.seed = 5, .layer = 2}, .p = c.p};
  if (c.has_keys) in.dropout.row_keys = at::arange(rows, longs) * 3 + 1;
  in.real_rows = at::full({1}, c.nodes, longs);
  return in;
}

struct LayerOutcome {
  std::vector<std::pair<std::string, Tensor>> values;
};

// Returns the real part of the output, of every gradient and of the running statistics.
LayerOutcome RunLayer(const LayerCase& c, LayerInputs in, bool fused) {
  GineWeights w = in.weights;
  w.running_mean = w.running_mean.clone();
  w.running_var = w.running_var.clone();
  w.batches_tracked = w.batches_tracked.clone();
  const Tensor x = Leaf(in.x);
  if (in.edges.rows.defined()) in.edges.rows = Leaf(in.edges.rows);
  for (Tensor* t : {&w.w1, &w.b1, &w.w2, &w.b2, &w.norm_weight, &w.norm_bias}) *t = Leaf(*t);
  const Tensor y = fused ? GineLayer(x, in.edges, in.real_rows, w, in.dropout)
                         : GineLayerPlain(x, in.edges, in.real_rows, w, in.dropout);
  torch::autograd::backward({y}, {in.out_grad});
  const int64_t real_edges = c.codes > 0 ? c.codes : c.edges;
  if (fused) {
    EXPECT_TRUE(y.narrow(0, c.nodes, y.size(0) - c.nodes).eq(0).all().item<bool>()) << c.why << ": padding rows";
    EXPECT_TRUE(x.grad().narrow(0, c.nodes, y.size(0) - c.nodes).eq(0).all().item<bool>())
        << c.why << ": gradient of padding rows";
  }
  // GIN has no edge rows to compare.
  const Tensor of_edges =
      in.edges.rows.defined() ? in.edges.rows.grad().narrow(0, 0, real_edges) : at::zeros({0}, x.options());
  return {{{"output", y.narrow(0, 0, c.nodes).detach()},
           {"gradient of x", x.grad().narrow(0, 0, c.nodes)},
           {"gradient of edge rows", of_edges},
           {"gradient of w1", w.w1.grad()},
           {"gradient of b1", w.b1.grad()},
           {"gradient of w2", w.w2.grad()},
           {"gradient of b2", w.b2.grad()},
           {"gradient of the norm's weight", w.norm_weight.grad()},
           {"gradient of the norm's bias", w.norm_bias.grad()},
           {"running mean", w.running_mean},
           {"running variance", w.running_var},
           {"batches", w.batches_tracked}}};
}

void ExpectLayersClose(const LayerOutcome& a, const LayerOutcome& b, double tolerance, const std::string& why) {
  for (size_t i = 0; i < a.values.size(); ++i) {
    const Tensor &p = a.values[i].second, &q = b.values[i].second;
    if (p.scalar_type() == at::kLong) {
      EXPECT_TRUE(at::equal(p, q)) << why << ": " << a.values[i].first;
      continue;
    }
    const double scale = 1 + (q.numel() > 0 ? q.abs().max().item<double>() : 0);
    EXPECT_TRUE(at::allclose(p, q, tolerance, tolerance * scale))
        << why << ": " << a.values[i].first << " differs by " << (p - q).abs().max();
  }
}

void ExpectEqualBits(const LayerOutcome& a, const LayerOutcome& b, const std::string& why) {
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_TRUE(at::equal(a.values[i].second, b.values[i].second)) << why << ": " << a.values[i].first;
  }
}

TEST(GineLayer, AgreesWithThePlainLayerInFloat64) {
  for (const LayerCase& c : kLayerCases) {
    const LayerInputs in = MakeLayer(c, 3, 5, at::kDouble);
    ExpectLayersClose(RunLayer(c, in, true), RunLayer(c, in, false), 1e-10, c.why);
  }
}

TEST(GineLayer, AgreesWithThePlainLayerInFloat32) {
  for (const LayerCase& c : kLayerCases) {
    const LayerInputs in = MakeLayer(c, 1, 0, at::kFloat);
    ExpectLayersClose(RunLayer(c, in, true), RunLayer(c, in, false), 2e-4, c.why);
  }
}

// Checks the gradient against finite differences along it, without a reference's derivative.
TEST(GineLayer, GradientsAreThoseOfDifferences) {
  const LayerCase c{"small", 14, 30, 6, 7, 5, 3, 0.3};
  const LayerInputs in = MakeLayer(c, 2, 3, at::kDouble);
  const auto loss = [&](const Tensor& x, const Tensor& rows, const std::vector<Tensor>& w) {
    LayerInputs now = in;
    now.edges.rows = rows;
    const GineWeights weights{w[0],
                              w[1],
                              w[2],
                              w[3],
                              w[4],
                              w[5],
                              at::zeros({c.out}, at::kDouble),
                              at::ones({c.out}, at::kDouble),
                              at::zeros({}, at::kLong)};
    return (GineLayer(x, now.edges, in.real_rows, weights, in.dropout) * in.out_grad).sum();
  };
  std::vector<Tensor> inputs{in.x, in.edges.rows};
  const GineWeights& w = in.weights;
  for (const Tensor& t : {w.w1, w.b1, w.w2, w.b2, w.norm_weight, w.norm_bias}) inputs.push_back(t);
  const auto value = [&](const std::vector<Tensor>& at) {
    return loss(at[0], at[1], std::vector<Tensor>(at.begin() + 2, at.end()));
  };
  ExpectGradientsOfDifferences(inputs, value, 1e-4, 1e-7, c.why);
}

TEST(GineLayer, PaddingChangesNoBit) {
  for (const LayerCase& c : kLayerCases) {
    ExpectEqualBits(RunLayer(c, MakeLayer(c, 200, 77, at::kFloat), true),
                    RunLayer(c, MakeLayer(c, 1, 0, at::kFloat), true), c.why);
  }
}

TEST(GineLayer, TheNumberOfThreadsChangesNoBit) {
  const int threads = at::get_num_threads();
  for (const LayerCase& c : kLayerCases) {
    const LayerInputs in = MakeLayer(c, 1, 0, at::kFloat);
    at::set_num_threads(1);
    const LayerOutcome one = RunLayer(c, in, true);
    at::set_num_threads(4);
    ExpectEqualBits(RunLayer(c, in, true), one, c.why);
  }
  at::set_num_threads(threads);
}

TEST(GineLayer, EveryInstructionSetAgreesWithThePlainLayer) {
  ForEveryInstructionSet([](const std::string& instructions) {
    for (const LayerCase& c : kLayerCases) {
      const LayerInputs in = MakeLayer(c, 3, 5, at::kDouble);
      ExpectLayersClose(RunLayer(c, in, true), RunLayer(c, in, false), 1e-10, c.why + (" with " + instructions));
    }
    const LayerCase& common = kLayerCases[1];
    const LayerInputs in = MakeLayer(common, 1, 0, at::kFloat);
    ExpectLayersClose(RunLayer(common, in, true), RunLayer(common, in, false), 2e-4, instructions);
  });
}

TEST(GineLayer, EvaluationAgreesWithThePlainLayer) {
  const at::NoGradGuard no_grad;
  for (const LayerCase& c : kLayerCases) {
    const LayerInputs in = MakeLayer(c, 2, 1, at::kDouble);
    const Tensor fused = GineLayerEval(in.x, in.edges, in.real_rows, in.weights).narrow(0, 0, c.nodes);
    const Tensor plain = GineLayerEvalPlain(in.x, in.edges, in.weights).narrow(0, 0, c.nodes);
    EXPECT_TRUE(at::allclose(fused, plain, 1e-10, 1e-10)) << c.why;
  }
}

TEST(GineLayer, OneRealRowIsNormalizedByTheRunningStatisticsWhichStay) {
  for (const LayerCase& c : kLayerCases) {
    if (c.nodes != 1) continue;
    const LayerInputs in = MakeLayer(c, 3, 5, at::kDouble);
    const LayerOutcome run = RunLayer(c, in, true);
    const at::NoGradGuard no_grad;
    const auto value = [&](const std::string& name) {
      return std::ranges::find(run.values, name, &std::pair<std::string, Tensor>::first)->second;
    };
    const Tensor want = GineLayerEval(in.x, in.edges, in.real_rows, in.weights).narrow(0, 0, 1);
    EXPECT_TRUE(at::allclose(value("output"), want, 1e-12, 1e-12)) << c.why;
    EXPECT_TRUE(at::equal(value("running mean"), in.weights.running_mean)) << c.why;
    EXPECT_TRUE(at::equal(value("running variance"), in.weights.running_var)) << c.why;
    EXPECT_EQ(value("batches").item<int64_t>(), 0) << c.why;
    EXPECT_GT(value("gradient of w1").abs().max().item<double>(), 0) << c.why;
  }
}

// With one real row, the gradients treat the running statistics as constants.
TEST(GineLayer, GradientsOfOneRealRowAreThoseOfDifferences) {
  const LayerCase c{"one node", 1, 3, 6, 7, 5, 3};
  const LayerInputs in = MakeLayer(c, 2, 3, at::kDouble);
  std::vector<Tensor> inputs{in.x, in.edges.rows};
  const GineWeights& w = in.weights;
  for (const Tensor& t : {w.w1, w.b1, w.w2, w.b2, w.norm_weight, w.norm_bias}) inputs.push_back(t);
  const auto value = [&](const std::vector<Tensor>& at) {
    LayerInputs now = in;
    now.edges.rows = at[1];
    const GineWeights weights{
        at[2], at[3], at[4], at[5], at[6], at[7], w.running_mean, w.running_var, at::zeros({}, at::kLong)};
    return (GineLayer(at[0], now.edges, in.real_rows, weights, in.dropout) * in.out_grad).sum();
  };
  ExpectGradientsOfDifferences(inputs, value, 1e-4, 1e-7, c.why);
}

TEST(GineLayer, WithoutARealRowNothingIsLearned) {
  const LayerCase c{"none", 12, 20, 8, 8, 8};
  LayerInputs in = MakeLayer(c, 0, 0, at::kFloat);
  in.real_rows.zero_();
  GineWeights w = in.weights;
  const Tensor mean = w.running_mean.clone(), var = w.running_var.clone(), w1 = Leaf(w.w1);
  w.w1 = w1;
  const Tensor y = GineLayer(in.x, in.edges, in.real_rows, w, in.dropout);
  EXPECT_TRUE(y.eq(0).all().item<bool>());
  torch::autograd::backward({y}, {in.out_grad});
  EXPECT_TRUE(w1.grad().eq(0).all().item<bool>());
  EXPECT_TRUE(at::equal(w.running_mean, mean) && at::equal(w.running_var, var));
}

TEST(GineLayer, AnEdgeThatEndsInPaddingPassesNoGradient) {
  const LayerCase c{"into padding", 12, 20, 8, 8, 8};
  LayerInputs in = MakeLayer(c, 1, 4, at::kFloat);
  LayerInputs other = in;
  other.edges.source = in.edges.source.clone();
  other.edges.source.narrow(0, c.edges, 4).fill_(3);  // edges from a real row to the padding row
  other.edges.index = IndexEdges(other.edges.source, other.edges.target, in.x.size(0));
  const LayerOutcome plain = RunLayer(c, in, true);
  for (int i = 0; i < 3; ++i) ExpectEqualBits(RunLayer(c, other, true), plain, c.why);
}

TEST(GineLayer, ANaNPassesThrough) {
  const LayerCase c{"nan", 12, 20, 8, 8, 8};
  LayerInputs in = MakeLayer(c, 1, 0, at::kFloat);
  in.x[3][2] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = GineLayerEval(in.x, in.edges, in.real_rows, in.weights);
  EXPECT_TRUE(y[3].isnan().all().item<bool>());
}

TEST(GineLayer, InputsThatDoNotMatchAreNamed) {
  const LayerCase c{"common", 12, 20, 8, 8, 8};
  LayerInputs in = MakeLayer(c, 1, 0, at::kFloat);
  const auto message = [&](const Tensor& x, const Tensor& rows) {
    try {
      GineLayer(x, in.edges, rows, in.weights, in.dropout);
    } catch (const c10::Error& e) {
      return std::string(e.what_without_backtrace());
    }
    return std::string();
  };
  EXPECT_NE(message(at::randn({13, 9}), in.real_rows).find("[codes or E, 9]"), std::string::npos);
  EXPECT_NE(message(in.x, at::full({1}, 14, at::kLong)).find("real_rows: 14 is outside 0..13"), std::string::npos);
}

TEST(EdgeIndex, OrdersEdgesByBothEnds) {
  const Tensor source = at::tensor({2, 0, 2, 1, 2}, at::kLong), target = at::tensor({0, 1, 1, 2, 2}, at::kLong);
  const EdgeIndex index = IndexEdges(source, target, 4);
  EXPECT_TRUE(at::equal(index.in_offsets, at::tensor({0, 1, 3, 5, 5}, at::kInt)));
  EXPECT_TRUE(at::equal(index.out_offsets, at::tensor({0, 1, 2, 5, 5}, at::kInt)));
  EXPECT_TRUE(at::equal(index.out_targets, at::tensor({1, 2, 0, 1, 2}, at::kInt)));
  EXPECT_TRUE(at::equal(index.out_edges, at::tensor({1, 3, 0, 2, 4}, at::kInt)));
}

}  // namespace
}  // namespace permafrost::nn
