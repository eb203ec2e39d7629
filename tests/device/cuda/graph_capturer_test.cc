// The capture of device graphs, without a device that has them: tensors of the stand-in for MPS, and a graph
// implementation that runs again what ran while it was captured.
#include "device/cuda/graph_capturer.h"

#include <ATen/ATen.h>
#include <ATen/core/GraphImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/mps/stand_in.h"

namespace at {

// What was called, in order; shared by all graphs of a test.
struct FakeGraphs {
  std::vector<std::string> calls;
  bool capturing = false;
  std::function<void()> step;  // what the step that is captured does
  int made = 0;
};
static FakeGraphs& Fakes() {
  static FakeGraphs fakes;
  return fakes;
}

class FakeGraph final : public GraphImplInterface {
 public:
  explicit FakeGraph(const GraphImplArgs& /*args*/) : number_(++Fakes().made) {}
  void capture_begin(MempoolId_t pool, GraphCaptureMode /*mode*/) override {
    Call("begins in pool " + std::to_string(pool.second));
    pool_ = pool.second == 0 ? MempoolId_t{0, static_cast<CaptureId_t>(70 + number_)} : pool;
    Fakes().capturing = true;
  }
  void capture_end() override {
    Call("ends");
    Fakes().capturing = false;
    step_ = std::exchange(Fakes().step, nullptr);
  }
  void instantiate() override {}
  void replay() override {
    Call("replays");
    step_();
  }
  void reset() override { Call("is reset"); }
  MempoolId_t pool() const override { return pool_; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& /*path*/) override {}

 private:
  void Call(const std::string& what) const { Fakes().calls.push_back("graph " + std::to_string(number_) + " " + what); }

  const int number_;
  MempoolId_t pool_{0, 0};
  std::function<void()> step_;
};

REGISTER_GRAPH_IMPL(MPS, FakeGraph);

}  // namespace at

namespace permafrost::device {
namespace {

using at::Tensor;
using graphcache::StepInputs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GraphCapturerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
    at::Fakes() = {};
    within_ = std::make_unique<MpsStandIn>();
    weight_ = at::tensor({0.5F, -1.0F, 2.0F}).reshape({3, 1}).to(at::kMPS);
    program_.state = {{"weight", weight_}};
    program_.on_phase = [](int phase) { at::Fakes().calls.push_back("phase " + std::to_string(phase)); };
    program_.run = [this](const StepInputs& in) { return Step(in); };
  }
  static StepInputs Inputs(int64_t rows, float first) {
    return {{at::arange(3 * rows, at::kFloat).reshape({rows, 3}).add(first).div(10).to(at::kMPS), Tensor()}};
  }
  std::vector<Tensor> Step(const StepInputs& in) {
    MarkPhase(1, program_.on_phase);
    const Tensor out = in.tensors[0].mm(weight_);
    const auto update = [this](const Tensor& x, const Tensor& by) { weight_.sub_(x.t().mm(by).mul(0.01)); };
    update(in.tensors[0], out);
    MarkPhase(2, program_.on_phase);
    if (at::Fakes().capturing) {
      at::Fakes().step = [this, x = in.tensors[0], out, update] {
        out.copy_(x.mm(weight_).add(error_));
        update(x, out);
      };
    }
    return {out};
  }
  std::string Host(const Tensor& t) const {
    std::ostringstream text;
    text << t.cpu();
    return text.str();
  }
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(int64_t rows = 4) {
    return capturer_.Capture(program_, Inputs(rows, 1), Inputs(rows, 2));
  }

  std::unique_ptr<MpsStandIn> within_;
  Tensor weight_;
  StepProgram program_;
  float error_ = 0;  // of a replay
  GraphCapturer capturer_{{c10::kMPS, 0}};
};

TEST_F(GraphCapturerTest, AReplayIsTheStepOnTheInputsThatItIsGiven) {
  const std::string before = Host(weight_);
  const auto four = Capture(4), five = Capture(5);
  ASSERT_TRUE(four.ok() && five.ok()) << four.status() << five.status();
  EXPECT_EQ(Host(weight_), before) << "a capture leaves no trace";
  EXPECT_THAT(at::Fakes().calls, ElementsAre("graph 1 begins in pool 0", "graph 1 ends", "graph 1 replays",
                                             "graph 2 begins in pool 71", "graph 2 ends", "graph 2 replays"))
      << "graphs share one pool, and phases of captures are none of a step";
  EXPECT_EQ((*four)->bytes(), 4 * 3 * 4);

  const Tensor start = weight_.clone();
  for (const float first : {7.0F, -3.0F}) {
    weight_.copy_(start);
    const std::string want_out = Host(Step(Inputs(4, first))[0]), want_weight = Host(weight_);
    weight_.copy_(start);
    at::Fakes().calls.clear();
    const auto replayed = (*four)->Replay(Inputs(4, first));
    ASSERT_TRUE(replayed.ok());
    EXPECT_EQ(Host((*replayed)->tensors[0]), want_out);
    EXPECT_EQ(Host(weight_), want_weight);
    EXPECT_THAT(at::Fakes().calls, ElementsAre("phase 1", "graph 1 replays", "phase 2"));
  }
}

TEST_F(GraphCapturerTest, AValueReadBackIsAGraphBreakBeforeAnythingIsCaptured) {
  program_.run = [this](const StepInputs& in) {
    auto out = Step(in);
    if (out[0].sum().item<float>() > 1e30F) out.pop_back();
    return out;
  };
  const absl::Status refused = Capture().status();
  EXPECT_EQ(GetReason(refused).reason, graphcache::kGraphBreakReason);
  EXPECT_EQ(GetReason(refused).metadata.at("op"), "aten::_local_scalar_dense") << refused;
  EXPECT_EQ(at::Fakes().made, 0);
}

TEST_F(GraphCapturerTest, AHostValueThatChangesIsAGraphBreak) {
  int run = 0;
  program_.run = [&](const StepInputs& in) {
    weight_.add_(static_cast<double>(++run));
    return Step(in);
  };
  const absl::Status refused = Capture().status();
  EXPECT_EQ(GetReason(refused).reason, graphcache::kGraphBreakReason) << refused;
  EXPECT_EQ(at::Fakes().made, 0);
}

TEST_F(GraphCapturerTest, WhatTheDeviceRefusesIsAGraphBreakAndTheCaptureEnds) {
  const std::string before = Host(weight_);
  program_.run = [this](const StepInputs& in) {
    auto out = Step(in);
    TORCH_CHECK(!at::Fakes().capturing, "operation not permitted when stream is capturing");
    return out;
  };
  const absl::Status refused = Capture().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("operation not permitted when stream is capturing"));
  EXPECT_EQ(GetReason(refused).metadata.at("op"), "");
  EXPECT_THAT(at::Fakes().calls, ElementsAre("graph 1 begins in pool 0", "graph 1 ends"));
  EXPECT_EQ(Host(weight_), before);
}

TEST_F(GraphCapturerTest, AReplayThatDiffersIsAGraphBreak) {
  error_ = 0.5F;
  const std::string before = Host(weight_);
  const absl::Status refused = Capture().status();
  EXPECT_EQ(GetReason(refused).reason, graphcache::kGraphBreakReason);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("a replay leaves weight otherwise than the step did"));
  EXPECT_EQ(Host(weight_), before);
  error_ = 1e-7F;
  EXPECT_TRUE(Capture().ok()) << "sums by atomic operations differ from run to run";
}

TEST_F(GraphCapturerTest, NoGraphServesEveryShape) {
  const auto none = [](size_t) -> absl::StatusOr<const StepInputs*> { return absl::InternalError("not asked for"); };
  EXPECT_EQ(capturer_.CaptureDynamic(program_, none).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace permafrost::device
