#include "nn/ops/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <vector>

#include "nn/leaf.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

struct MlpShape {
  const char* why;
  int64_t rows, in, hidden, out;
};
const MlpShape kMlpShapes[] = {{"a head", 33, 64, 32, 1},
                               {"no rows", 0, 5, 4, 3},
                               {"several chunks, widths off the vector's", 700, 45, 71, 19},
                               {"a wide one", 300, 300, 300, 300}};

// Output and gradients of x, w1, b1, w2, b2.
std::vector<Tensor> RunMlp(const MlpShape& shape, at::ScalarType type, bool fused) {
  at::manual_seed(shape.rows + shape.hidden);
  const auto make = [&](at::IntArrayRef sizes) { return Leaf(at::randn(sizes, at::TensorOptions().dtype(type)) / 4); };
  std::vector<Tensor> leaves{make({shape.rows, shape.in}), make({shape.hidden, shape.in}), make({shape.hidden}),
                             make({shape.out, shape.hidden}), make({shape.out})};
  const Tensor grad = at::randn({shape.rows, shape.out}, at::TensorOptions().dtype(type));
  const Tensor y = fused ? Mlp(leaves[0], leaves[1], leaves[2], leaves[3], leaves[4])
                         : at::addmm(leaves[4], at::addmm(leaves[2], leaves[0], leaves[1].t()).relu(), leaves[3].t());
  torch::autograd::backward({y}, {grad});
  std::vector<Tensor> values{y.detach()};
  for (const Tensor& leaf : leaves) values.push_back(leaf.grad());
  return values;
}

TEST(Mlp, AgreesWithPyTorchsOperators) {
  for (const MlpShape& shape : kMlpShapes) {
    const auto fused = RunMlp(shape, at::kDouble, true), plain = RunMlp(shape, at::kDouble, false);
    for (size_t i = 0; i < fused.size(); ++i) {
      EXPECT_TRUE(at::allclose(fused[i], plain[i], 1e-11, 1e-11)) << shape.why << ": value " << i;
    }
    const auto single = RunMlp(shape, at::kFloat, true), of_torch = RunMlp(shape, at::kFloat, false);
    for (size_t i = 0; i < single.size(); ++i) {
      EXPECT_TRUE(at::allclose(single[i], of_torch[i], 1e-4, 1e-4)) << shape.why << ": value " << i << " in float32";
    }
  }
}

TEST(Mlp, ANaNPassesBackAsInPyTorch) {
  const auto run = [](bool fused) {
    const Tensor x = Leaf(at::ones({3, 4}, at::kDouble)), w = at::ones({4, 4}, at::kDouble),
                 b = at::zeros({4}, at::kDouble);
    {
      const at::NoGradGuard no_grad;
      x[1][2] = std::numeric_limits<double>::quiet_NaN();
    }
    const Tensor y = fused ? Mlp(x, w, b, w, b) : at::addmm(b, at::addmm(b, x, w.t()).relu(), w.t());
    torch::autograd::backward({y}, {at::ones_like(y)});
    return x.grad();
  };
  EXPECT_TRUE(at::allclose(run(true), run(false), 1e-12, 1e-12, /*equal_nan=*/true)) << run(true) << run(false);
}

TEST(Mlp, TheNumberOfThreadsChangesNoBit) {
  const int threads = at::get_num_threads();
  for (const MlpShape& shape : kMlpShapes) {
    at::set_num_threads(1);
    const auto one = RunMlp(shape, at::kFloat, true);
    at::set_num_threads(4);
    const auto four = RunMlp(shape, at::kFloat, true);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], four[i])) << shape.why << ": value " << i;
  }
  at::set_num_threads(threads);
}

TEST(Mlp, WidthsThatDoNotMatchAreNamed) {
  EXPECT_THROW(Mlp(at::ones({2, 3}), at::ones({4, 5}), at::ones({4}), at::ones({1, 4}), at::ones({1})), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
