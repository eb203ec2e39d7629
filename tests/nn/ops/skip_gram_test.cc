#include "nn/loss.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>
#include <vector>

#include "nn/every_instruction_set.h"
#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/ops/lowering.h"
#include "nn/optimizer.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

struct WalkCase {
  int64_t nodes, width, seeds, length;
  WalkLayout layout;
  at::ScalarType type = at::kDouble;
};

const WalkCase kCases[] = {
    {7, 5, 3, 6, {.context = 3, .per_seed = 2, .negatives = 1}},
    {40, 64, 9, 20, {.context = 10, .per_seed = 3, .negatives = 2}, at::kFloat},
    {40, 64, 9, 20, {.context = 10, .per_seed = 3, .negatives = 2}},
    {3, 1, 1, 2, {.context = 2, .per_seed = 1, .negatives = 1}},
    {12, 130, 4, 8, {.context = 8, .per_seed = 1, .negatives = 3}, at::kFloat},
};

std::string NameOf(const WalkCase& c) {
  return std::to_string(c.nodes) + " x " + std::to_string(c.width) + ", walks of " + std::to_string(c.length) + ", " +
         (c.type == at::kFloat ? "float" : "double");
}

// Scores are small, except in wide tables. Some scores of these are so large that their sigmoid is 0 or 1.
Tensor TableOf(const WalkCase& c) {
  const Tensor values = at::sin(at::arange(c.nodes * c.width, c.type) * 3).reshape({c.nodes, c.width});
  if (c.width <= 100) return values * 0.2;
  return values * (at::arange(c.nodes, c.type) * 0.15 + 0.05).view({c.nodes, 1});
}

// Makes walks of `real` seeds, padded to c.seeds seeds. The padding walks consist of node 0.
Tensor WalksOf(const WalkCase& c, int64_t real) {
  const auto part = [&](int64_t each, int64_t factor) {
    const Tensor walks =
        ((at::arange(real * each * c.length, at::kLong) * factor + factor / 6) % 101 % c.nodes).view({-1, c.length});
    return at::cat({walks, at::zeros({(c.seeds - real) * each, c.length}, at::kLong)});
  };
  return at::cat({part(c.layout.per_seed, 7), part(c.layout.per_seed * c.layout.negatives, 13)});
}

// Same as in torch_geometric.nn.Node2Vec: cuts the walks into windows, and pairs the first node of each window with
// its other nodes.
Tensor LossOfWindows(const Tensor& table, const Tensor& walks, int64_t context, bool negative) {
  std::vector<Tensor> windows;
  for (int64_t j = 0; j + context <= walks.size(1); ++j) windows.push_back(walks.narrow(1, j, context));
  const Tensor all = at::cat(windows);
  const Tensor start = table.index_select(0, all.select(1, 0)).unsqueeze(1);
  const Tensor rest =
      table.index_select(0, all.narrow(1, 1, context - 1).reshape({-1})).view({all.size(0), context - 1, -1});
  const Tensor likelihood = at::sigmoid((start * rest).sum(-1).view({-1}));
  return -at::log((negative ? 1 - likelihood : likelihood) + 1e-15).mean();
}

struct WalkReference {
  Tensor loss, gradient;
};
WalkReference WalkReferenceOf(const WalkCase& c, int64_t real) {
  const Tensor table = Leaf(TableOf(c)), walks = WalksOf(c, real);
  const int64_t positives = c.seeds * c.layout.per_seed;
  const Tensor loss = LossOfWindows(table, walks.narrow(0, 0, real * c.layout.per_seed), c.layout.context, false) +
                      LossOfWindows(table, walks.narrow(0, positives, real * c.layout.per_seed * c.layout.negatives),
                                    c.layout.context, true);
  return {loss.detach(), torch::autograd::grad({loss}, {table}).front()};
}

// Finds the places of each node among the entries of real walks, as a sort would.
RowGradient GradientOf(const WalkCase& c, const Tensor& walks, int64_t real, const Tensor& parts) {
  const int64_t positives = c.seeds * c.layout.per_seed;
  const Tensor number = at::arange(walks.numel(), at::kLong), walk = number.floor_divide(c.length);
  const Tensor is_real = walk.lt(positives)
                             .logical_and(walk.lt(real * c.layout.per_seed))
                             .logical_or(walk.ge(positives).logical_and(
                                 walk.lt(positives + real * c.layout.per_seed * c.layout.negatives)));
  std::vector<int64_t> rows, offsets{0}, places;
  const Tensor nodes = walks.reshape({-1});
  for (int64_t node = 0; node < c.nodes; ++node) {
    for (int64_t e = 0; e < nodes.numel(); ++e) {
      if (nodes[e].item<int64_t>() == node && is_real[e].item<bool>()) places.push_back(e);
    }
    if (std::ssize(places) == offsets.back()) continue;
    rows.push_back(node);
    offsets.push_back(std::ssize(places));
  }
  while (std::ssize(rows) < c.nodes) {
    rows.push_back(rows.front());
    offsets.push_back(offsets.back());
  }
  places.resize(static_cast<size_t>(nodes.numel()));
  return {at::tensor(rows, at::kLong), at::tensor(offsets, at::kLong), at::tensor(places, at::kLong), parts, nodes};
}

OpOutcome RunStep(const WalkCase& c, int64_t real) {
  const Tensor table = TableOf(c), walks = WalksOf(c, real);
  const SkipGramStep step = SkipGram(table, walks, at::tensor({real}, at::kLong), c.layout);
  return {{"loss", step.terms.mean.to(at::kDouble)},
          {"sum", step.terms.sum.to(at::kDouble)},
          {"gradient", DenseGradient(GradientOf(c, walks, real, step.parts), c.nodes)},
          {"scores", WalkScores(table, walks, c.layout.context)}};
}

TEST(SkipGram, AgreesWithPyGsFormulaAndItsGradient) {
  ForEveryInstructionSet([](const std::string& set) {
    for (const WalkCase& c : kCases) {
      for (const int64_t real : {c.seeds, (c.seeds + 1) / 2}) {
        const std::string why = NameOf(c) + ", " + std::to_string(real) + " seeds, " + set;
        const WalkReference want = WalkReferenceOf(c, real);
        const OpOutcome got = RunStep(c, real);
        EXPECT_NEAR(got[0].second.item<double>(), want.loss.item<double>(), 1e-5 * (1 + want.loss.item<double>()))
            << why;
        EXPECT_NEAR(got[1].second.item<double>(), static_cast<double>(real) * want.loss.item<double>(),
                    1e-5 * static_cast<double>(real) * (1 + want.loss.item<double>()))
            << why;
        const double scale = want.gradient.abs().max().item<double>(), of_type = c.type == at::kFloat ? 1e-5 : 1e-12;
        EXPECT_LE((got[2].second - want.gradient).abs().max().item<double>(), of_type * (1e-3 + scale)) << why;
        EXPECT_GT(scale, 1e-4) << "a gradient of nothing would agree with anything";
      }
    }
  });
}

TEST(SkipGram, AgreesWithTheOperatorsOfPyTorchAndGivesEqualBitsForAnyThreads) {
  for (const WalkCase& c : kCases) {
    const auto run = [&] { return RunStep(c, (c.seeds + 1) / 2); };
    const OpOutcome fused = run();
    for (const spec::Lowering lowering : {spec::Lowering::kPlain, spec::Lowering::kShapeFree}) {
      const LoweringScope scope(lowering);
      // In at least one lowering, losses are float32.
      nn::ExpectClose(fused, run(), c.type == at::kFloat ? 2e-5 : 1e-6, NameOf(c));
    }
    ExpectEqualByThreads(run, NameOf(c));
  }
}

TEST(SkipGram, PaddingTakesNoPart) {
  WalkCase padded = kCases[1], own = padded;
  own.seeds = 4;
  const OpOutcome with = RunStep(padded, 4), without = RunStep(own, 4);
  for (const size_t i : {0, 1, 2}) EXPECT_TRUE(at::equal(with[i].second, without[i].second)) << with[i].first;
  const Tensor walks = WalksOf(padded, 4);
  const Tensor parts = SkipGram(TableOf(padded), walks, at::tensor({4}, at::kLong), padded.layout).parts;
  const int64_t begin = 4 * padded.layout.per_seed * padded.length,
                end = padded.seeds * padded.layout.per_seed * padded.length;
  EXPECT_EQ(parts.slice(0, begin, end).abs().max().item<float>(), 0);
}

TEST(SkipGram, TheMeanOfScoresIsTheLoss) {
  const WalkCase& c = kCases[1];
  const Tensor walks = WalksOf(c, c.seeds), table = TableOf(c);
  const int64_t positives = c.seeds * c.layout.per_seed;
  const double loss = MeanWalkLoss(WalkScores(table, walks.narrow(0, 0, positives), c.layout.context), false) +
                      MeanWalkLoss(WalkScores(table, walks.slice(0, positives), c.layout.context), true);
  EXPECT_NEAR(loss, WalkReferenceOf(c, c.seeds).loss.item<double>(), 1e-5);
}

TEST(SkipGram, AScoreThatIsNoNumberMakesTheLossNone) {
  for (const bool negative : {false, true}) {
    const Tensor scores = at::zeros({2, 9});
    EXPECT_TRUE(std::isfinite(MeanWalkLoss(scores, negative)));
    scores[1][7] = std::nan("");
    EXPECT_TRUE(std::isnan(MeanWalkLoss(scores, negative)));
  }
}

TEST(SkipGram, RefusesWhatIsNoBatchOfWalks) {
  const WalkCase& c = kCases[0];
  const Tensor table = TableOf(c), walks = WalksOf(c, 2), seeds = at::tensor({2}, at::kLong);
  EXPECT_NO_THROW(SkipGram(table, walks, seeds, c.layout));
  EXPECT_THROW(SkipGram(table, walks.to(at::kInt), seeds, c.layout), c10::Error);
  EXPECT_THROW(SkipGram(table, walks, at::tensor({4}, at::kLong), c.layout), c10::Error) << "more seeds than room";
  EXPECT_THROW(SkipGram(table, walks.slice(0, 1), seeds, c.layout), c10::Error) << "a part of a seed";
  EXPECT_THROW(SkipGram(table.t(), walks, seeds, c.layout), c10::Error);
  EXPECT_THROW(SkipGram(table, walks, seeds, {.context = 7, .per_seed = 2, .negatives = 1}), c10::Error);
}

// torch.optim.SparseAdam, written out from its source, on the rows of a dense gradient.
void ReferenceSparseAdam(const Tensor& table, const Tensor& m, const Tensor& v, const Tensor& gradient,
                         const std::vector<int64_t>& rows, int step, double rate) {
  const double c1 = 1 - std::pow(0.9, step), c2 = 1 - std::pow(0.999, step);
  for (const int64_t row : rows) {
    const Tensor g = gradient[row];
    m[row].add_((g - m[row]) * 0.1);
    v[row].add_((g * g - v[row]) * 0.001);
    table[row].sub_(m[row] / (v[row].sqrt() + 1e-8) * (rate * std::sqrt(c2) / c1));
  }
}

TEST(SparseAdam, FollowsPyTorchsAndLeavesOtherRowsAlone) {
  for (const bool plain : {false, true}) {
    const LoweringScope scope(plain ? spec::Lowering::kPlain : spec::Lowering::kAuto);
    const WalkCase c{40, 19, 2, 6, {.context = 3, .per_seed = 2, .negatives = 1}};
    TensorSet tensors;
    const Tensor table = tensors.AddParameter("embedding.weight", TableOf(c));
    const Tensor want = table.detach().clone(), m = at::zeros_like(want), v = at::zeros_like(want);
    Optimizer optimizer({.algorithm = spec::OptimizerAlgorithm::kSparseAdam, .learning_rate = 0.05},
                        tensors.parameters());
    for (int t = 1; t <= 4; ++t) {
      // Each step has other walks, so that rows pause and resume.
      const Tensor walks = (WalksOf(c, 2) * t) % 23;
      const SkipGramStep step = SkipGram(table, walks, at::tensor({2}, at::kLong), c.layout);
      const RowGradient gradient = GradientOf(c, walks, 2, step.parts);
      std::vector<int64_t> rows;
      for (int64_t row = 0; row < c.nodes; ++row) {
        if (walks.eq(row).any().item<bool>()) rows.push_back(row);
      }
      ASSERT_LT(std::ssize(rows), c.nodes);
      ReferenceSparseAdam(want, m, v, DenseGradient(gradient, c.nodes), rows, t, 0.05);
      optimizer.StepRows(gradient);
    }
    EXPECT_LE((table.detach() - want).abs().max().item<double>(), 5e-6) << "plain: " << plain;
    EXPECT_TRUE(at::equal(table.detach().slice(0, 23), TableOf(c).slice(0, 23))) << "rows of no walk";
  }
}

TEST(SparseAdam, OtherOptimizersTakeTheSameGradientAsADenseOne) {
  const WalkCase& c = kCases[1];
  const Tensor walks = WalksOf(c, c.seeds);
  for (const spec::OptimizerAlgorithm algorithm : {spec::OptimizerAlgorithm::kAdam, spec::OptimizerAlgorithm::kSgd}) {
    TensorSet by_rows, dense;
    const Tensor a = by_rows.AddParameter("w", TableOf(c)), b = dense.AddParameter("w", TableOf(c));
    const spec::OptimizerOptions options{.algorithm = algorithm, .learning_rate = 0.1, .weight_decay = 0.01};
    Optimizer first(options, by_rows.parameters()), second(options, dense.parameters());
    const SkipGramStep step = SkipGram(a, walks, at::tensor({c.seeds}, at::kLong), c.layout);
    const RowGradient gradient = GradientOf(c, walks, c.seeds, step.parts);
    first.StepRows(gradient);
    second.Step({DenseGradient(gradient, c.nodes)});
    EXPECT_TRUE(at::equal(a.detach(), b.detach())) << spec::kOptimizerNames.Name(algorithm);
    EXPECT_FALSE(at::equal(a.detach(), TableOf(c)));
  }
}

}  // namespace
}  // namespace permafrost::nn
