#include "device/mps/stand_in.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "device/backend.h"
#include "device/cpu/tape.h"

namespace permafrost::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StandInTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MpsStandIn::present()) GTEST_SKIP() << "MPS is real here, or libtorch is for another accelerator";
  }
  static at::Tensor OnMps(const at::Tensor& host) { return host.to(at::kMPS); }
  static at::Tensor Iota(at::IntArrayRef sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return at::arange(count, at::kFloat).reshape(sizes) / 7;
  }
  static std::vector<at::Tensor> Gradients(const at::Tensor& of, const std::vector<at::Tensor>& in) {
    const MpsStandIn within;
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    auto gradients = torch::autograd::grad({of}, in);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
    return gradients;
  }
  static std::string MessageOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  }
};

TEST_F(StandInTest, NoJobRunsOnIt) {
  {
    const MpsStandIn within;
    { const MpsStandIn nested; }
    EXPECT_TRUE(at::hasMPS());
  }
  EXPECT_FALSE(at::hasMPS());
  EXPECT_FALSE(OpenBackend(DeviceKind::kMps).ok());
}

TEST_F(StandInTest, WhatGoesInComesBack) {
  const at::Tensor host = Iota({3, 4});
  const at::Tensor mps = OnMps(host);
  EXPECT_TRUE(mps.is_mps());
  EXPECT_EQ(mps.device(), c10::Device(c10::kMPS, 0));
  EXPECT_TRUE(mps.cpu().equal(host));
  EXPECT_EQ(mps[1][2].item<float>(), host[1][2].item<float>());
}

TEST_F(StandInTest, ViewsShareBytesAndWritesAreSeen) {
  const at::Tensor mps = at::zeros({4, 3}, at::kMPS);
  mps.t().select(0, 1).narrow(0, 1, 2).fill_(5);
  EXPECT_TRUE(mps.cpu().equal(at::tensor({0, 0, 0, 0, 5, 0, 0, 5, 0, 0, 0, 0}, at::kFloat).view({4, 3})));
  at::Tensor grown = at::empty({0}, mps.options());
  at::add_out(grown, mps, 1);
  EXPECT_EQ(grown.sizes(), mps.sizes());
  EXPECT_TRUE(grown.cpu().equal(mps.cpu() + 1));
}

TEST_F(StandInTest, CallsTheOperatorsOfAMacAndNotTheHosts) {
  const std::vector<StateTensor> no_state;
  Tape tape(no_state);
  const at::Tensor x = OnMps(Iota({5, 3})), weight = OnMps(Iota({2, 3})).set_requires_grad(true);
  tape.Record({x, weight}, [&] { return Gradients(at::linear(x, weight).relu().sum(), {weight}); });
  std::vector<std::string> names;
  for (const Tape::Op& op : tape.ops()) names.emplace_back(op.name());
  EXPECT_THAT(names, ElementsAre("aten::linear", "aten::relu", "aten::sum", "aten::ones_like", "aten::expand",
                                 "aten::threshold_backward", "aten::linear_backward"));
}

TEST_F(StandInTest, LinearAndItsGradientsAreTheHosts) {
  const auto gradients = [](c10::Device device) {
    std::vector<at::Tensor> leaves{Iota({5, 3}).to(device), Iota({2, 3}).to(device), Iota({2}).to(device)};
    for (at::Tensor& leaf : leaves) leaf = leaf.detach().set_requires_grad(true);
    return Gradients(at::linear(leaves[0], leaves[1], leaves[2]).square().sum(), leaves);
  };
  const auto host = gradients(at::kCPU), mps = gradients(at::kMPS);
  for (size_t i = 0; i < host.size(); ++i) EXPECT_TRUE(mps[i].cpu().allclose(host[i])) << i;
}

TEST_F(StandInTest, RefusesWhatAMacRefuses) {
  const at::Tensor x = OnMps(Iota({3}));
  EXPECT_THAT(MessageOf([&] { x.to(at::kDouble); }), HasSubstr("aten::empty"));
  EXPECT_THAT(MessageOf([&] { x.to(at::kDouble); }), HasSubstr("no float64"));
  EXPECT_THAT(MessageOf([&] { x + Iota({3}); }), HasSubstr("aten::add"));
  // This operator has no kernel on MPS.
  EXPECT_THAT(MessageOf([&] { at::_fused_adagrad_({x}, {x}, {x}, {x}, 0.1, 0, 0, 0, false); }),
              HasSubstr("aten::_fused_adagrad_"));
}

}  // namespace
}  // namespace permafrost::device
