// Compares the fused attention with the same formula of PyTorch's operators, on graphs of all sizes and shapes.
#include "nn/ops/gat_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <utility>
#include <vector>

#include "nn/differences.h"
#include "nn/every_instruction_set.h"
#include "nn/leaf.h"
#include "nn/op_outcome.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

struct GatCase {
  const char* why;
  int64_t rows, targets, edges, heads, channels;
  bool with_edges = false;
  double p = 0;
};

const GatCase kGatCases[] = {
    {"a common layer", 300, 80, 500, 4, 16},
    {"several chunks of rows", 900, 700, 3000, 2, 64},
    {"one head", 120, 120, 400, 1, 32},
    {"widths off the vector's", 60, 45, 99, 3, 13},
    {"a single column", 20, 20, 40, 1, 1},
    {"no edges", 30, 10, 0, 2, 8},
    {"one row with loops onto itself", 1, 1, 3, 2, 8},
    {"no target", 9, 0, 0, 2, 8},
    {"edges with rows", 200, 150, 400, 2, 24, true},
    {"edges with rows, none of them", 10, 10, 0, 2, 24, true},
    {"dropout", 260, 200, 500, 4, 8, false, 0.4},
    {"dropout, edges with rows", 90, 90, 400, 3, 5, true, 0.6},
};

struct GatInputTensors {
  Tensor left, right, attention, out_grad;
  GatEdges edges;
  GatOptions options;
};

GatInputTensors MakeGat(const GatCase& c, at::ScalarType type, double scale = 1) {
  at::manual_seed(c.rows * 1000 + c.edges);
  const auto floats = at::TensorOptions().dtype(type), longs = at::TensorOptions().dtype(at::kLong);
  const int64_t width = c.heads * c.channels;
  GatInputTensors in;
  in.left = at::randn({c.rows, width}, floats) * scale;
  in.right = at::randn({c.targets, width}, floats) * scale;
  in.attention = at::randn({width}, floats);
  in.out_grad = at::randn({c.targets, width}, floats);
  const Tensor target = at::randint(0, std::max<int64_t>(1, c.targets), {c.edges}, longs);
  in.edges.offsets = at::cat({at::zeros({1}, longs), at::bincount(target, {}, c.targets).cumsum(0)});
  // Sources beyond the last offset are padding and name arbitrary rows. Some edges are self-loops.
  in.edges.sources = at::randint(0, c.rows, {c.edges + 7}, longs);
  in.edges.transpose = TransposeCsr(in.edges.offsets, in.edges.sources, c.rows);
  if (c.with_edges) {
    in.edges.rows = at::randn({c.edges + 7, width}, floats);
    in.edges.self_rows = at::randn({c.targets, width}, floats);
  }
  in.options = {.heads = c.heads,
                .step = at::full({1}, 17, longs),
                .key = {.seed = 5, .layer = 2},
                .p = c.p,
                .row_keys = at::arange(c.rows, longs) * 3 + 1};
  return in;
}

OpOutcome RunGat(GatInputTensors in, bool fused) {
  const auto leaf = [](const Tensor& t) { return t.defined() ? Leaf(t) : t; };
  const Tensor left = leaf(in.left), right = leaf(in.right), attention = leaf(in.attention);
  in.edges.rows = leaf(in.edges.rows);
  in.edges.self_rows = leaf(in.edges.self_rows);
  const Tensor y = (fused ? GatAttention : GatAttentionPlain)(left, right, attention, in.edges, in.options);
  torch::autograd::backward({y}, {in.out_grad});
  OpOutcome outcome{{"output", y.detach()},
                    {"gradient of left", left.grad()},
                    {"gradient of right", right.grad()},
                    {"gradient of attention", attention.grad()}};
  if (in.edges.rows.defined()) {
    outcome.emplace_back("gradient of edges", in.edges.rows.grad());
    outcome.emplace_back("gradient of self-loops", in.edges.self_rows.grad());
  }
  return outcome;
}

TEST(GatAttention, AgreesWithThePlainAttention) {
  for (const GatCase& c : kGatCases) {
    if (c.targets == 0) continue;  // the plain attention cannot run without rows
    const GatInputTensors doubles = MakeGat(c, at::kDouble), floats = MakeGat(c, at::kFloat);
    ExpectClose(RunGat(doubles, true), RunGat(doubles, false), 1e-11, c.why);
    ExpectClose(RunGat(floats, true), RunGat(floats, false), 1e-4, c.why);
  }
}

TEST(GatAttention, EveryInstructionSetAgreesWithThePlainAttention) {
  ForEveryInstructionSet([](const std::string& name) {
    for (const GatCase& c : kGatCases) {
      if (c.targets == 0) continue;
      const GatInputTensors in = MakeGat(c, at::kDouble);
      ExpectClose(RunGat(in, true), RunGat(in, false), 1e-11, std::string(c.why) + " with " + name);
    }
  });
}

TEST(GatAttention, TheNumberOfThreadsChangesNoBit) {
  for (const GatCase& c : kGatCases) {
    const auto in = MakeGat(c, at::kFloat);
    ExpectEqualByThreads([&] { return RunGat(in, true); }, c.why);
  }
}

// Checks the gradients against finite differences, without a reference's derivative.
TEST(GatAttention, GradientsAreThoseOfDifferences) {
  for (const bool with_edges : {false, true}) {
    const GatCase c{"small", 12, 8, 26, 2, 3, with_edges, 0.3};
    const GatInputTensors in = MakeGat(c, at::kDouble);
    std::vector<Tensor> inputs{in.left, in.right, in.attention};
    if (with_edges) inputs.insert(inputs.end(), {in.edges.rows, in.edges.self_rows});
    const auto value = [&](const std::vector<Tensor>& at) {
      GatEdges edges = in.edges;
      if (with_edges) {
        edges.rows = at[3];
        edges.self_rows = at[4];
      }
      return (GatAttention(at[0], at[1], at[2], edges, in.options) * in.out_grad).sum();
    };
    ExpectGradientsOfDifferences(inputs, value, 1e-4, 0, with_edges ? "with edges" : "without");
  }
}

// The scores reach thousands, and the exponential of such a score overflows.
TEST(GatAttention, LargeScoresStayFinite) {
  const GatCase c{"large", 50, 40, 200, 2, 16};
  const GatInputTensors in = MakeGat(c, at::kFloat, /*scale=*/300);
  for (const auto& [name, value] : RunGat(in, true)) EXPECT_TRUE(value.isfinite().all().item<bool>()) << name;
  EXPECT_TRUE(at::allclose(RunGat(in, true)[0].second, RunGat(in, false)[0].second, 1e-3, 1e-1));
}

// Layer-wise evaluation processes the rows of a graph in chunks.
TEST(GatAttention, ChunksOfRowsAgreeWithAllAtOnce) {
  const GatCase c{"chunks", 60, 60, 300, 2, 8};
  const GatInputTensors in = MakeGat(c, at::kFloat);
  const Tensor all = GatAttention(in.left, in.right, in.attention, in.edges, {.heads = c.heads});
  std::vector<Tensor> parts;
  for (const auto& [begin, size] : {std::pair<int64_t, int64_t>{0, 17}, {17, 43}}) {
    const Tensor offsets = in.edges.offsets.narrow(0, begin, size + 1);
    const auto first = offsets[0].item<int64_t>();
    const GatEdges edges{.offsets = offsets - first, .sources = in.edges.sources.slice(0, first).contiguous()};
    parts.push_back(GatAttention(in.left, in.right.narrow(0, begin, size), in.attention, edges,
                                 {.heads = c.heads, .first_row = begin}));
  }
  EXPECT_TRUE(at::equal(at::cat(parts), all));
}

TEST(GatAttention, InputsThatDoNotMatchAreNamed) {
  const GatCase c{"common", 12, 10, 20, 2, 4};
  const auto message = [&](const auto& change) {
    GatInputTensors in = MakeGat(c, at::kFloat);
    change(in);
    try {
      RunGat(in, true);
    } catch (const c10::Error& e) {
      return std::string(e.what_without_backtrace());
    }
    return std::string();
  };
  const struct {
    void (*change)(GatInputTensors&);
    const char* want;
  } kBad[] = {
      {[](GatInputTensors& in) { in.attention = at::randn({7}); }, "attention [7] of 2 heads do not match"},
      {[](GatInputTensors& in) { in.options.heads = 3; }, "of 3 heads do not match"},
      {[](GatInputTensors& in) { in.options.p = 1; }, "p: 1 is not in 0 <= p < 1"},
      {[](GatInputTensors& in) {
         in.edges.rows = at::randn({27, 8});
       },
       "rows of edges must be given with those of"},
      {[](GatInputTensors& in) { in.edges.transpose.offsets = in.edges.transpose.offsets.narrow(0, 0, 5); },
       "the transpose must be of the rows of left or more, 12"},
      {[](GatInputTensors& in) { in.edges.offsets = in.edges.offsets + 50; }, "offsets are 50..70, edges 27"},
  };
  for (const auto& bad : kBad) EXPECT_NE(message(bad.change).find(bad.want), std::string::npos) << bad.want;
}

}  // namespace
}  // namespace permafrost::nn
