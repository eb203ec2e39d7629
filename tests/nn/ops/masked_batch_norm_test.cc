#include "nn/ops/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "nn/leaf.h"
#include "nn/models/parts.h"
#include "nn/tensor_set.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

struct Outcome {
  Tensor y, gx, gw, gb, mean, var;
};

struct Inputs {
  Tensor x, weight, bias, mean, var, out_grad;
};

Inputs MakeInputs(int64_t rows, int64_t columns, at::ScalarType type) {
  at::manual_seed(rows * 1000 + columns);
  const auto options = at::TensorOptions().dtype(type);
  return {at::randn({rows, columns}, options) * 3 + 1,
          at::rand({columns}, options) + 0.5,
          at::randn({columns}, options),
          at::randn({columns}, options),
          at::rand({columns}, options) + 0.5,
          at::randn({rows, columns}, options)};
}

// Runs the operator under test over `padded` rows. The first rows are real, and padding is filled with `fill`.
Outcome Masked(const Inputs& in, int64_t padded, double fill) {
  const int64_t rows = in.x.size(0);
  const Tensor x = at::full({padded, in.x.size(1)}, fill, in.x.options());
  x.narrow(0, 0, rows).copy_(in.x);
  const Tensor grad = at::full_like(x, 7);
  grad.narrow(0, 0, rows).copy_(in.out_grad);
  const Tensor lx = Leaf(x), lw = Leaf(in.weight), lb = Leaf(in.bias);
  Tensor mean = in.mean.clone(), var = in.var.clone();
  const Tensor y = MaskedBatchNormRelu(lx, at::full({1}, rows, at::kLong), lw, lb, mean, var);
  torch::autograd::backward({y}, {grad});
  EXPECT_TRUE(y.narrow(0, rows, padded - rows).eq(0).all().item<bool>()) << "padding rows of the output";
  EXPECT_TRUE(lx.grad().narrow(0, rows, padded - rows).eq(0).all().item<bool>()) << "padding rows of the gradient";
  return {y.narrow(0, 0, rows), lx.grad().narrow(0, 0, rows), lw.grad(), lb.grad(), mean, var};
}

// Runs PyTorch's own batch norm and ReLU over the real rows only.
Outcome Reference(const Inputs& in) {
  const Tensor lx = Leaf(in.x), lw = Leaf(in.weight), lb = Leaf(in.bias);
  Tensor mean = in.mean.clone(), var = in.var.clone();
  const Tensor y = at::batch_norm(lx, lw, lb, mean, var, /*training=*/true, 0.1, 1e-5, false).relu();
  torch::autograd::backward({y}, {in.out_grad});
  return {y, lx.grad(), lw.grad(), lb.grad(), mean, var};
}

void ExpectAgree(const Outcome& a, const Outcome& b, double tolerance, const std::string& why) {
  const auto close = [&](const Tensor& p, const Tensor& q, const char* what) {
    EXPECT_TRUE(at::allclose(p, q, tolerance, tolerance))
        << why << ": " << what << " differs by " << (p - q).abs().max();
  };
  close(a.y, b.y, "output");
  close(a.gx, b.gx, "input gradient");
  close(a.gw, b.gw, "weight gradient");
  close(a.gb, b.gb, "bias gradient");
  close(a.mean, b.mean, "running mean");
  close(a.var, b.var, "running variance");
}

TEST(MaskedBatchNorm, AgreesWithPyTorchOverTheRealRows) {
  const struct {
    const char* why;
    int64_t rows, columns, padded;
  } kCases[] = {{"a padding row", 33, 64, 34},
                {"columns that do not fill a block", 20, 70, 31},
                {"a single column", 17, 1, 40},
                {"two rows, the fewest that vary", 2, 8, 3},
                {"large enough to run in parallel", 3000, 256, 3001}};
  for (const auto& c : kCases) {
    const Inputs doubles = MakeInputs(c.rows, c.columns, at::kDouble);
    ExpectAgree(Masked(doubles, c.padded, 0), Reference(doubles), 1e-11, std::string(c.why) + " in float64");
    const Inputs floats = MakeInputs(c.rows, c.columns, at::kFloat);
    ExpectAgree(Masked(floats, c.padded, 0), Reference(floats), 2e-4, std::string(c.why) + " in float32");
  }
}

TEST(MaskedBatchNorm, MorePaddingChangesNoBit) {
  const Inputs in = MakeInputs(100, 64, at::kFloat);
  const Outcome few = Masked(in, 101, 0), many = Masked(in, 400, 5);
  EXPECT_TRUE(at::equal(few.y, many.y));
  EXPECT_TRUE(at::equal(few.gx, many.gx));
  EXPECT_TRUE(at::equal(few.gw, many.gw));
  EXPECT_TRUE(at::equal(few.var, many.var));
}

TEST(MaskedBatchNorm, NanInPaddingStaysThere) {
  const Inputs in = MakeInputs(10, 8, at::kFloat);
  ExpectAgree(Masked(in, 12, std::numeric_limits<double>::quiet_NaN()), Masked(in, 12, 0), 0, "NaN padding");
}

TEST(MaskedBatchNorm, NanInARealRowIsNotHidden) {
  Inputs in = MakeInputs(10, 8, at::kFloat);
  in.x[3][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(Masked(in, 12, 0).y.select(1, 2).isnan().all().item<bool>());
}

TEST(MaskedBatchNorm, NanPassesBackAsInPyTorch) {
  Inputs in = MakeInputs(10, 8, at::kDouble);
  in.x[3][2] = std::numeric_limits<double>::quiet_NaN();
  const Outcome run = Masked(in, 12, 0), torch = Reference(in);
  EXPECT_TRUE(at::allclose(run.gb, torch.gb, 1e-11, 1e-11, /*equal_nan=*/true)) << run.gb << torch.gb;
  EXPECT_TRUE(at::allclose(run.gx, torch.gx, 1e-11, 1e-11, /*equal_nan=*/true));
}

// Same as PyG's BatchNorm with allow_single_element: values and gradients are those of evaluation.
TEST(MaskedBatchNorm, OneRealRowIsNormalizedByTheRunningStatisticsWhichStay) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Inputs in = MakeInputs(1, 70, type);
    const Outcome run = Masked(in, 3, std::numeric_limits<double>::quiet_NaN());
    const Tensor lx = Leaf(in.x), lw = Leaf(in.weight), lb = Leaf(in.bias);
    const Tensor y = at::batch_norm(lx, lw, lb, in.mean, in.var, /*training=*/false, 0.1, 1e-5, false).relu();
    torch::autograd::backward({y}, {in.out_grad});
    ExpectAgree(run, {y, lx.grad(), lw.grad(), lb.grad(), in.mean, in.var}, type == at::kDouble ? 1e-12 : 1e-5,
                at::toString(type));
    EXPECT_TRUE(at::equal(run.mean, in.mean)) << type;
    EXPECT_TRUE(at::equal(run.var, in.var)) << type;
    EXPECT_GT(run.gx.abs().max().item<double>(), 0) << type;
  }
}

// Real rows may lie anywhere here, as in a batch of sampled nodes.
TEST(MaskedBatchNorm, OneRealRowAmongOthersIsNormalizedByTheRunningStatistics) {
  TensorSet tensors;
  WeightMaker weights(1, at::kCPU, tensors);
  const RowNorm norm(weights, "norm", spec::Norm::kBatch, 6);
  const Inputs in = MakeInputs(5, 6, at::kFloat);
  for (NamedTensor& t : tensors.All()) {
    const at::NoGradGuard no_grad;
    if (t.name.ends_with("mean")) t.value.copy_(in.mean);
    if (t.name.ends_with("var")) t.value.copy_(in.var);
  }
  const auto run = [&](const std::vector<int64_t>& keys, bool training) {
    const Tensor x = Leaf(in.x);
    const RealRowsOf real{.count = {}, .keys = at::tensor(keys, at::kLong)};
    const Tensor y = norm.Activate(x, real, training, {.relu = true, .step = {}, .key = {}, .p = 0, .row_keys = {}});
    y.select(0, 2).sum().backward();
    return std::pair(y.select(0, 2).detach().clone(), x.grad().select(0, 2).clone());
  };
  const std::vector<int64_t> one{-1, -1, 8, -1, -1};
  const auto [wanted, wanted_grad] = run(one, false);
  const std::vector<NamedTensor> before = Clone(tensors.All());
  const auto [got, got_grad] = run(one, true);
  EXPECT_TRUE(at::allclose(got, wanted, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(got_grad, wanted_grad, 1e-5, 1e-6));
  EXPECT_GT(wanted_grad.abs().max().item<double>(), 0);
  const auto after = tensors.All();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i].value, after[i].value)) << before[i].name;
  run({-1, 3, 8, -1, -1}, true);
  for (size_t i = 0; i < before.size(); ++i) {
    const bool follows = before[i].name.find("running") != std::string::npos || before[i].name.ends_with("tracked");
    EXPECT_EQ(at::equal(before[i].value, tensors.All()[i].value), !follows) << before[i].name;
  }
}

TEST(MaskedBatchNorm, CountsTheBatchesThatTheRunningStatisticsFollow) {
  const Tensor batches = at::zeros({}, at::kLong);
  for (const int64_t rows : {0, 1, 2, 30}) CountNormBatch(batches, at::full({1}, rows, at::kLong));
  EXPECT_EQ(batches.item<int64_t>(), 2);
}

// A batch of graphs without nodes has no real row.
TEST(MaskedBatchNorm, WithoutARealRowNothingIsLearned) {
  const Inputs in = MakeInputs(0, 8, at::kDouble);
  const Outcome run = Masked(in, 3, 5);
  EXPECT_TRUE(at::equal(run.mean, in.mean));
  EXPECT_TRUE(at::equal(run.var, in.var));
  EXPECT_TRUE(run.gw.eq(0).all().item<bool>());
  EXPECT_TRUE(run.gb.eq(0).all().item<bool>());
}

TEST(MaskedBatchNorm, CountOutsideTheRowsIsRefused) {
  const Inputs in = MakeInputs(4, 2, at::kFloat);
  Tensor mean = in.mean.clone(), var = in.var.clone();
  for (const int64_t rows : {-1, 5}) {
    EXPECT_THROW(MaskedBatchNormRelu(in.x, at::full({1}, rows, at::kLong), in.weight, in.bias, mean, var), c10::Error)
        << rows;
  }
}

// Compares the composite form, which other devices run, with the CPU kernel. The test calls both directly.
TEST(MaskedBatchNorm, CompositeFormAgreesWithTheKernel) {
  const auto forward = c10::Dispatcher::singleton().findSchemaOrThrow("permafrost::masked_batch_norm_relu", "");
  const auto backward =
      c10::Dispatcher::singleton().findSchemaOrThrow("permafrost::masked_batch_norm_relu_backward", "");
  const at::NoGradGuard no_grad;
  for (const int64_t rows : {40, 1, 0}) {
    const Inputs in = MakeInputs(rows, 24, at::kDouble);
    const Tensor x = at::cat({in.x, at::ones({5, 24}, in.x.options())});
    const Tensor grad = at::cat({in.out_grad, at::ones({5, 24}, in.x.options())});
    const Tensor count = at::full({1}, rows, at::kLong);
    const auto call = [&](const c10::OperatorHandle& op, c10::DispatchKey key, std::vector<c10::IValue> stack) {
      op.callBoxedForDispatchKey(key, stack);
      return stack;
    };
    Tensor means[2] = {in.mean.clone(), in.mean.clone()}, vars[2] = {in.var.clone(), in.var.clone()};
    const auto kernel =
        call(forward, c10::DispatchKey::CPU, {x, count, in.weight, in.bias, means[0], vars[0], 0.1, 1e-5});
    const auto composite = call(forward, c10::DispatchKey::CompositeExplicitAutograd,
                                {x, count, in.weight, in.bias, means[1], vars[1], 0.1, 1e-5});
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::allclose(kernel[i].toTensor(), composite[i].toTensor(), 1e-11, 1e-11))
          << "forward output " << i << " of " << rows << " rows";
    }
    EXPECT_TRUE(at::allclose(means[0], means[1], 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(vars[0], vars[1], 1e-12, 1e-12));
    const std::vector<c10::IValue> saved = {grad, x, kernel[0], count, in.weight, kernel[1], kernel[2]};
    const auto kernel_grads = call(backward, c10::DispatchKey::CPU, saved);
    const auto composite_grads = call(backward, c10::DispatchKey::CompositeExplicitAutograd, saved);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::allclose(kernel_grads[i].toTensor(), composite_grads[i].toTensor(), 1e-11, 1e-11))
          << "backward output " << i << " of " << rows << " rows";
    }
  }
}

TEST(MaskedBatchNorm, EvaluationUsesTheRunningStatistics) {
  const Inputs in = MakeInputs(9, 5, at::kDouble);
  const Tensor want = at::batch_norm(in.x, in.weight, in.bias, in.mean, in.var, false, 0.1, 1e-5, false).relu();
  EXPECT_TRUE(at::allclose(BatchNormReluEval(in.x, in.weight, in.bias, in.mean, in.var), want, 1e-12, 1e-12));
}

// With as many rows as a whole set has, a running float32 sum would be off by a hundredth.
TEST(MaskedBatchNormRelu, SumsOfManyRowsStayExact) {
  const Inputs in = MakeInputs(250'000, 3, at::kFloat);
  Inputs exact = in;
  for (Tensor* t : {&exact.x, &exact.weight, &exact.bias, &exact.mean, &exact.var, &exact.out_grad}) {
    *t = t->to(at::kDouble);
  }
  // The mean gradient is far from 0, so its sum is large.
  for (const Inputs* i : {&in, static_cast<const Inputs*>(&exact)}) Tensor(i->out_grad).add_(2);
  const Outcome got = Masked(in, 250'001, 0), want = Masked(exact, 250'001, 0);
  const auto apart = [](const Tensor& a, const Tensor& b) {
    return ((a.to(at::kDouble) - b).abs().max() / b.abs().max()).item<double>();
  };
  EXPECT_LT(apart(got.gw, want.gw), 1e-5);
  EXPECT_LT(apart(got.gb, want.gb), 1e-5);
  EXPECT_LT(apart(got.mean, want.mean), 1e-6);
  EXPECT_LT(apart(got.var, want.var), 1e-6);
}

}  // namespace
}  // namespace permafrost::nn
