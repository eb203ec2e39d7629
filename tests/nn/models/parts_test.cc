#include "nn/models/parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace permafrost::nn {
namespace {

TEST(LinkDecoder, DotIsTheDotProduct) {
  TensorSet tensors;
  const LinkDecoder decoder(spec::LinkScore::kDot, 3, 1, at::kCPU, tensors);
  const at::Tensor x = at::arange(12, at::kFloat).reshape({4, 3});
  const at::Tensor scores = decoder(x, {at::tensor({0, 3, 2}, at::kLong), at::tensor({1, 3, 0}, at::kLong)});
  EXPECT_TRUE(at::equal(scores, at::tensor({14.0F, 302.0F, 23.0F}).unsqueeze(1)));
  EXPECT_TRUE(tensors.All().empty());
}

TEST(LinkDecoder, MlpIsTwoLayersOfTheProduct) {
  TensorSet tensors;
  const LinkDecoder decoder(spec::LinkScore::kMlp, 3, 1, at::kCPU, tensors);
  ASSERT_EQ(tensors.parameters().size(), 4U);
  EXPECT_EQ(tensors.parameters()[0].name, "decoder.lins.0.weight");
  EXPECT_EQ(tensors.parameters()[3].name, "decoder.lins.1.bias");
  EXPECT_EQ(tensors.num_parameter_values(), LinkDecoder::Parameters(spec::LinkScore::kMlp, 3));
  const auto& p = tensors.parameters();
  const at::Tensor x = at::sin(at::arange(12, at::kFloat)).reshape({4, 3});
  const at::Tensor scores = decoder(x, {at::tensor({0, 2}, at::kLong), at::tensor({1, 3}, at::kLong)});
  const at::Tensor product = at::stack({x[0] * x[1], x[2] * x[3]});
  const at::Tensor hidden = at::relu(at::linear(product, p[0].value, p[1].value));
  EXPECT_TRUE(at::allclose(scores, at::linear(hidden, p[2].value, p[3].value), 1e-6, 1e-6));
  // The predictor's weights differ from those of a model with the same seed.
  TensorSet of_model;
  const Linear first = WeightMaker(1, at::kCPU, of_model).MakeLinear("lin", 3, 3);
  EXPECT_FALSE(at::equal(first.weight, p[0].value));
}

}  // namespace
}  // namespace permafrost::nn
