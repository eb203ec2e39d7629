// Compares the fused convolution with the same formula of PyTorch's operators, on blocks of all sizes and shapes.
#include "nn/ops/graph_conv.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "nn/differences.h"
#include "nn/every_instruction_set.h"
#include "nn/kernels/linear.h"
#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

struct ConvCase {
  const char* why;
  int64_t rows, targets, edges, in, out;
  enum Form { kOwn, kSumAlone, kNoWeight, kNoWeightAddend, kSumsMade } form;
  bool normed = false;  // true: weights, self and scale instead of the mean
  bool relu = true;
  double p = 0;
};

const ConvCase kConvCases[] = {
    {"means beside their rows", 300, 80, 500, 16, 24, ConvCase::kOwn},
    {"several chunks of rows", 900, 700, 3000, 64, 64, ConvCase::kOwn},
    {"widths off the vector's", 60, 45, 99, 13, 21, ConvCase::kOwn},
    {"a single column", 20, 20, 40, 1, 1, ConvCase::kOwn},
    {"a wide layer", 150, 90, 320, 130, 70, ConvCase::kOwn},
    {"no edges", 30, 10, 0, 8, 8, ConvCase::kOwn},
    {"one row with loops onto itself", 1, 1, 3, 8, 8, ConvCase::kOwn},
    {"no target", 9, 0, 0, 8, 8, ConvCase::kOwn},
    {"the last layer", 90, 30, 150, 32, 5, ConvCase::kOwn, false, false},
    {"dropout", 260, 200, 500, 32, 32, ConvCase::kOwn, false, true, 0.4},
    {"a norm", 300, 300, 900, 24, 16, ConvCase::kSumAlone, true},
    {"a norm, every target at once", 700, 700, 4000, 40, 40, ConvCase::kSumAlone, true, true, 0.2},
    {"after the weight", 300, 300, 900, 16, 16, ConvCase::kNoWeight, true},
    {"after the weight, the last layer", 300, 300, 900, 7, 7, ConvCase::kNoWeight, true, false},
    {"after the weight, own rows added", 300, 100, 400, 33, 33, ConvCase::kNoWeightAddend, false, true, 0.3},
    {"sums that are made", 500, 500, 0, 40, 24, ConvCase::kSumsMade, false, true, 0.5},
    {"sums that are made, the only layer", 50, 50, 0, 10, 3, ConvCase::kSumsMade, false, false},
};

struct ConvInputs {
  Tensor x, weight, bias, addend, out_grad;
  ConvEdges edges;
  ConvActivation activation;
};

ConvInputs MakeConv(const ConvCase& c, at::ScalarType type) {
  at::manual_seed(c.rows * 1000 + c.edges);
  const auto floats = at::TensorOptions().dtype(type), longs = at::TensorOptions().dtype(at::kLong);
  ConvInputs in;
  in.x = at::randn({c.rows, c.in}, floats);
  in.bias = at::randn({c.out}, floats);
  const int64_t columns = c.form == ConvCase::kOwn ? 2 * c.in : c.in;
  if (c.form != ConvCase::kNoWeight && c.form != ConvCase::kNoWeightAddend) {
    in.weight = at::randn({c.out, columns}, floats) / 4;
  }
  if (c.form == ConvCase::kNoWeightAddend) in.addend = at::randn({c.targets, c.out}, floats);
  in.out_grad = at::randn({c.targets, c.out}, floats);
  if (c.form != ConvCase::kSumsMade) {
    const Tensor target = at::randint(0, std::max<int64_t>(1, c.targets), {c.edges}, longs);
    in.edges.offsets = at::cat({at::zeros({1}, longs), at::bincount(target, {}, c.targets).cumsum(0)});
    // Sources beyond the last offset are padding and name arbitrary rows.
    in.edges.sources = at::randint(0, c.rows, {c.edges + 7}, longs);
    in.edges.transpose = TransposeCsr(in.edges.offsets, in.edges.sources, c.rows);
    if (c.normed) {
      in.edges.weights = at::rand({c.edges + 7}, floats);
      in.edges.self = at::rand({c.targets}, floats);
      in.edges.scale = at::rand({c.targets}, floats) + 0.5;
    } else {
      in.edges.scale = MeanScale(in.edges.offsets, type);
    }
  }
  in.activation = {.relu = c.relu,
                   .step = at::full({1}, 17, longs),
                   .key = {.seed = 5, .layer = 2},
                   .p = c.p,
                   .row_keys = at::arange(c.rows, longs) * 3 + 1};
  return in;
}

OpOutcome RunConv(const ConvInputs& in, bool fused) {
  const auto leaf = [](const Tensor& t) { return t.defined() ? Leaf(t) : t; };
  const Tensor x = leaf(in.x), weight = leaf(in.weight), bias = leaf(in.bias), addend = leaf(in.addend);
  const Tensor y = (fused ? GraphConv : GraphConvPlain)(x, in.edges, weight, bias, addend, in.activation);
  torch::autograd::backward({y}, {in.out_grad});
  OpOutcome outcome{{"output", y.detach()}, {"gradient of x", x.grad()}, {"gradient of bias", bias.grad()}};
  if (weight.defined()) outcome.emplace_back("gradient of weight", weight.grad());
  if (addend.defined()) outcome.emplace_back("gradient of addend", addend.grad());
  return outcome;
}

TEST(GraphConv, AgreesWithThePlainConvolution) {
  for (const ConvCase& c : kConvCases) {
    const ConvInputs doubles = MakeConv(c, at::kDouble), floats = MakeConv(c, at::kFloat);
    ExpectClose(RunConv(doubles, true), RunConv(doubles, false), 1e-11, c.why);
    ExpectClose(RunConv(floats, true), RunConv(floats, false), 1e-4, c.why);
  }
}

TEST(GraphConv, EveryInstructionSetAgreesWithThePlainConvolution) {
  ForEveryInstructionSet([](const std::string& name) {
    for (const ConvCase& c : kConvCases) {
      const ConvInputs in = MakeConv(c, at::kDouble);
      ExpectClose(RunConv(in, true), RunConv(in, false), 1e-11, std::string(c.why) + " with " + name);
    }
  });
}

TEST(GraphConv, TheNumberOfThreadsChangesNoBit) {
  for (const ConvCase& c : kConvCases) {
    const auto in = MakeConv(c, at::kFloat);
    ExpectEqualByThreads([&] { return RunConv(in, true); }, c.why);
  }
}

// Checks the gradients against finite differences, without a reference's derivative.
TEST(GraphConv, GradientsAreThoseOfDifferences) {
  for (const ConvCase::Form form : {ConvCase::kOwn, ConvCase::kSumAlone, ConvCase::kNoWeightAddend}) {
    const ConvCase c{"small", 14, 9, 30, 6, form == ConvCase::kNoWeightAddend ? 6 : 5, form, true, true, 0.3};
    const ConvInputs in = MakeConv(c, at::kDouble);
    const auto value = [&](const std::vector<Tensor>& at) {
      const Tensor weight = in.weight.defined() ? at[2] : Tensor(), addend = in.weight.defined() ? Tensor() : at[2];
      return (GraphConv(at[0], in.edges, weight, at[1], addend, in.activation) * in.out_grad).sum();
    };
    ExpectGradientsOfDifferences({in.x, in.bias, in.weight.defined() ? in.weight : in.addend}, value, 1e-4, 0,
                                 "form " + std::to_string(form));
  }
}

TEST(GraphConv, ScratchHoldsOnePanelHoweverWideTheInput) {
  EXPECT_EQ(ProductScratch<float>(300, Products::kFull), PackedSize<float>(300, 1, Products::kFull));
  EXPECT_EQ(ProductScratch<double>(100, Products::kFull), PackedSize<double>(100, 1, Products::kFull));
}

// The layers of a model share one transpose, and each layer has fewer rows than the one before.
TEST(GraphConv, ATransposeOfMoreRowsServes) {
  const ConvCase c{"more rows", 300, 80, 500, 16, 24, ConvCase::kOwn};
  const ConvInputs in = MakeConv(c, at::kFloat);
  ConvInputs fewer = in;
  fewer.edges.offsets = in.edges.offsets.narrow(0, 0, 31);
  fewer.edges.scale = in.edges.scale.narrow(0, 0, 30);
  fewer.out_grad = in.out_grad.narrow(0, 0, 30);
  const OpOutcome shared = RunConv(fewer, true);
  fewer.edges.transpose = TransposeCsr(fewer.edges.offsets, fewer.edges.sources, c.rows);
  const OpOutcome own = RunConv(fewer, true);
  for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(at::equal(shared[i].second, own[i].second)) << own[i].first;
}

TEST(GraphConv, ANaNPassesThrough) {
  const ConvCase c{"nan", 12, 12, 20, 8, 8, ConvCase::kOwn};
  ConvInputs in = MakeConv(c, at::kFloat);
  in.x[3][2] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = GraphConv(in.x, in.edges, in.weight, in.bias, {}, in.activation);
  EXPECT_TRUE(y[3].isnan().all().item<bool>());
}

TEST(GraphConv, InputsThatDoNotMatchAreNamed) {
  const ConvCase c{"common", 12, 10, 20, 8, 6, ConvCase::kOwn};
  const auto message = [&](const auto& change) {
    ConvInputs in = MakeConv(c, at::kFloat);
    change(in);
    try {
      RunConv(in, true);
    } catch (const c10::Error& e) {
      return std::string(e.what_without_backtrace());
    }
    return std::string();
  };
  const struct {
    void (*change)(ConvInputs&);
    const char* want;
  } kBad[] = {
      {[](ConvInputs& in) {
         in.weight = at::randn({6, 9});
       },
       "weight [6, 9]"},
      {[](ConvInputs& in) { in.weight = Tensor(), in.edges = ConvEdges(); }, "neither edges nor weight"},
      {[](ConvInputs& in) { in.edges.scale = at::ones({4}); }, "scale must be a contiguous [10]"},
      {[](ConvInputs& in) { in.activation.p = 1; }, "p: 1 is not in 0 <= p < 1"},
      {[](ConvInputs& in) { in.edges.transpose = CsrTranspose(); },
       "the transpose must be of the rows of x or more, 12"},
      {[](ConvInputs& in) { in.edges.offsets = in.edges.offsets + 50; }, "offsets are 50..70, edges 27"},
  };
  for (const auto& bad : kBad) EXPECT_NE(message(bad.change).find(bad.want), std::string::npos) << bad.want;
}

TEST(TransposeCsr, NamesTheRowsOfEachSource) {
  // Rows 0..2 gather {2, 0}, {} and {2, 2}. The remaining sources are padding.
  const Tensor offsets = at::tensor({0, 2, 2, 4}, at::kLong), sources = at::tensor({2, 0, 2, 2, 3, 3}, at::kLong);
  const CsrTranspose transpose = TransposeCsr(offsets, sources, 4);
  EXPECT_TRUE(at::equal(transpose.offsets, at::tensor({0, 1, 1, 4, 4}, at::kInt)));
  EXPECT_TRUE(at::equal(transpose.rows.narrow(0, 0, 4), at::tensor({0, 0, 2, 2}, at::kInt)));
  EXPECT_TRUE(at::equal(transpose.edges.narrow(0, 0, 4), at::tensor({1, 0, 2, 3}, at::kInt)));
  const CsrTranspose none = TransposeCsr(at::zeros({1}, at::kLong), at::zeros({0}, at::kLong), 0);
  EXPECT_TRUE(at::equal(none.offsets, at::tensor({0}, at::kInt)));
  EXPECT_THROW(TransposeCsr(offsets + 1, sources, 4), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
