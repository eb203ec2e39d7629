// Captures of device graphs without a device that supports them. Tensors are those of the stand-in for MPS, and a
// fake graph repeats the step that ran during its capture.
#include "device/cuda/graph_capturer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/cpu/tape.h"
#include "device/fault.h"
#include "device/mps/stand_in.h"
#include "device/staging.h"

namespace permafrost::device {
namespace {

// The calls in order. All graphs of a test share them.
struct FakeGraphs {
  std::vector<std::string> calls;
  bool capturing = false;
  std::string no_end;          // why captures fail to end; empty if they succeed
  std::function<void()> step;  // repeats the captured step
  int made = 0;
  unsigned long long pools = 70;
};

class FakeGraph final : public DeviceGraph {
 public:
  explicit FakeGraph(FakeGraphs& device) : device_(device), number_(++device.made) {}
  ~FakeGraph() override { Call("is gone"); }
  void BeginCapture(c10::MempoolId_t pool) override {
    Call("begins in pool " + std::to_string(pool.second));
    device_.capturing = true;
  }
  void EndCapture() override {
    Call("ends");
    device_.capturing = false;
    TORCH_CHECK(device_.no_end.empty(), device_.no_end);
    step_ = std::exchange(device_.step, nullptr);
  }
  void Replay() override {
    Call("replays");
    step_();
  }

 private:
  void Call(const std::string& what) const { device_.calls.push_back("graph " + std::to_string(number_) + " " + what); }

  FakeGraphs& device_;
  const int number_;
  std::function<void()> step_;
};

using at::Tensor;
using graphcache::StepInputs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GraphCapturerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
    within_ = std::make_unique<MpsStandIn>();
    weight_ = at::tensor({0.5F, -1.0F, 2.0F}).reshape({3, 1}).to(at::kMPS);
    program_.state = {{"weight", weight_}};
    program_.on_phase = [this](int phase) { fake_.calls.push_back("phase " + std::to_string(phase)); };
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
    if (fake_.capturing) {
      fake_.step = [this, x = in.tensors[0], out, update] {
        out.copy_(x.mm(weight_).add(error_));
        update(x, out);
      };
    }
    return {out};
  }
  // Returns the source device of each copy that `work` makes.
  static std::vector<std::string> Copies(const std::function<void()>& work) {
    std::vector<std::string> from;
    Tape::Listen(
        [&](const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
          if (op.operator_name().name == "aten::copy_")
            from.push_back(stack[stack.size() - 2].toTensor().device().str());
          return false;
        },
        work);
    return from;
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
  float error_ = 0;  // added to the output of a replay
  FakeGraphs fake_;
  GraphCapturer capturer_{{.device = {c10::kMPS, 0},
                           .make_graph = [this] { return std::make_unique<FakeGraph>(fake_); },
                           .new_pool =
                               [this] {
                                 return c10::MempoolId_t{0, ++fake_.pools};
                               },
                           .empty_cache = [this] { fake_.calls.emplace_back("cache emptied"); }}};
};

TEST_F(GraphCapturerTest, AReplayIsTheStepOnTheInputsThatItIsGiven) {
  const std::string before = Host(weight_);
  const auto four = Capture(4), five = Capture(5);
  ASSERT_TRUE(four.ok() && five.ok()) << four.status() << five.status();
  EXPECT_EQ(Host(weight_), before) << "a capture leaves no trace";
  EXPECT_THAT(fake_.calls, ElementsAre("cache emptied", "graph 1 begins in pool 71", "graph 1 ends", "graph 1 replays",
                                       "cache emptied", "graph 2 begins in pool 71", "graph 2 ends", "graph 2 replays"))
      << "graphs share one pool, and phases of captures are none of a step";
  EXPECT_EQ((*four)->bytes(), 4 * 3 * 4);

  const Tensor start = weight_.clone();
  for (const float first : {7.0F, -3.0F}) {
    weight_.copy_(start);
    const std::string want_out = Host(Step(Inputs(4, first))[0]), want_weight = Host(weight_);
    weight_.copy_(start);
    fake_.calls.clear();
    const auto replayed = (*four)->Replay(Inputs(4, first));
    ASSERT_TRUE(replayed.ok());
    EXPECT_EQ(Host((*replayed)->tensors[0]), want_out);
    EXPECT_EQ(Host(weight_), want_weight);
    EXPECT_THAT(fake_.calls, ElementsAre("phase 1", "graph 1 replays", "phase 2"));
  }
}

// The batches of jobs are on the host. The fake graph copies its output within the device, too.
TEST_F(GraphCapturerTest, ABatchOnTheHostIsOneCopyIntoTheGraphsInputs) {
  const auto on_host = [](float first) {
    StepInputs batch = Inputs(4, first);
    return StepInputs{.tensors = {batch.tensors[0].cpu(), Tensor(), at::full({1}, 7, at::kLong)}, .resident = {}};
  };
  const auto made = capturer_.Capture(program_, on_host(1), on_host(2));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->bytes(), 2 * InputLayout::kAlignment);
  const Tensor start = weight_.clone();
  for (const float first : {7.0F, -3.0F}) {
    weight_.copy_(start);
    const std::string want_out = Host(Step(Inputs(4, first))[0]), want_weight = Host(weight_);
    weight_.copy_(start);
    std::vector<Tensor> out;
    EXPECT_THAT(Copies([&] { out = (*(*made)->Replay(on_host(first)))->tensors; }), ElementsAre("cpu", "mps:0"));
    EXPECT_EQ(Host(out[0]), want_out);
    EXPECT_EQ(Host(weight_), want_weight);
    weight_.copy_(start);
    EXPECT_THAT(Copies([&] { out = capturer_.RunEager(program_, on_host(first)); }), ElementsAre("cpu"));
    EXPECT_EQ(Host(out[0]), want_out);
    EXPECT_EQ(Host(weight_), want_weight);
  }
}

TEST_F(GraphCapturerTest, WhatLiesOnTheDeviceForEveryBatchIsReadWhereItIs) {
  const auto with_resident = [](const Tensor& edges, float first) {
    StepInputs batch = Inputs(4, first);
    return StepInputs{.tensors = {batch.tensors[0].cpu(), edges}, .resident = {1}};
  };
  const Tensor edges = at::full({4, 1}, 2.0F).to(at::kMPS), others = at::full({4, 1}, 3.0F).to(at::kMPS);
  program_.run = [this](const StepInputs& in) {
    auto out = Step(in);
    out[0].mul_(in.tensors[1]);
    if (fake_.capturing) {
      fake_.step = [step = fake_.step, out = out[0], edges = in.tensors[1]] {
        step();
        out.mul_(edges);
      };
    }
    return out;
  };
  // The second batch has other edges. The proof replays on the first batch's edges and does not read them.
  const auto made = capturer_.Capture(program_, with_resident(edges, 1), with_resident(others, 2));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->bytes(), InputLayout::kAlignment) << "the edges are not copied";
  const Tensor start = weight_.clone();
  const std::string want = Host(program_.run(CopyToDevice(with_resident(edges, 5), {c10::kMPS, 0}))[0]);
  weight_.copy_(start);
  const auto replayed = (*made)->Replay(with_resident(edges, 5));
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(Host((*replayed)->tensors[0]), want);
  const absl::Status refused = (*made)->Replay(with_resident(others, 5)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another tensor than it reads as input 1"));
}

// The labels of a whole graph's split are on the device. They are copied only if a batch has another tensor.
TEST_F(GraphCapturerTest, ATensorOnTheDeviceIsCopiedWhereItIsAnotherThanBefore) {
  const auto made = Capture(4);
  ASSERT_TRUE(made.ok()) << made.status();
  const StepInputs batch = Inputs(4, 3), other = Inputs(4, 5);
  const auto replay = [&](const StepInputs& inputs) {
    return Copies([&] { EXPECT_TRUE((*made)->Replay(inputs).ok()); }).size();
  };
  EXPECT_EQ(replay(batch), 2U) << "the fake graph's is one";
  EXPECT_EQ(replay(batch), 1U);
  EXPECT_EQ(replay(other), 2U);
  EXPECT_EQ(replay(batch), 2U);
}

TEST_F(GraphCapturerTest, ABatchOfAnotherShapeIsRefused) {
  const auto made = Capture(4);
  ASSERT_TRUE(made.ok()) << made.status();
  for (const StepInputs& batch :
       {Inputs(5, 1), StepInputs{.tensors = {Inputs(4, 1).tensors[0].cpu(), Tensor()}, .resident = {}}}) {
    EXPECT_EQ((*made)->Replay(batch).status().code(), absl::StatusCode::kInternal);
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
  EXPECT_EQ(fake_.made, 0);
}

TEST_F(GraphCapturerTest, AHostValueThatChangesIsAGraphBreak) {
  int run = 0;
  program_.run = [&](const StepInputs& in) {
    weight_.add_(static_cast<double>(++run));
    return Step(in);
  };
  const absl::Status refused = Capture().status();
  EXPECT_EQ(GetReason(refused).reason, graphcache::kGraphBreakReason) << refused;
  EXPECT_EQ(fake_.made, 0);
}

TEST_F(GraphCapturerTest, WhatTheDeviceRefusesIsAGraphBreakAndTheCaptureEnds) {
  const std::string before = Host(weight_);
  program_.run = [this](const StepInputs& in) {
    auto out = Step(in);
    TORCH_CHECK(!fake_.capturing, "operation not permitted when stream is capturing");
    return out;
  };
  const absl::Status refused = Capture().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("operation not permitted when stream is capturing"));
  EXPECT_EQ(GetReason(refused).metadata.at("op"), "");
  EXPECT_THAT(fake_.calls,
              ElementsAre("cache emptied", "graph 1 begins in pool 71", "graph 1 ends", "graph 1 is gone"));
  EXPECT_EQ(Host(weight_), before);
}

// libtorch refuses a pool whose last graph is gone, so the next capture needs a new pool.
TEST_F(GraphCapturerTest, APoolEndsWithItsLastGraph) {
  auto first = Capture();
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Capture();
  ASSERT_TRUE(second.ok()) << second.status();
  first->reset();
  EXPECT_TRUE(Capture().ok());
  second->reset();
  EXPECT_TRUE(Capture().ok());
  std::vector<std::string> begins;
  for (const std::string& call : fake_.calls) {
    if (call.find("begins") != call.npos) begins.push_back(call);
  }
  EXPECT_THAT(begins, ElementsAre("graph 1 begins in pool 71", "graph 2 begins in pool 71", "graph 3 begins in pool 71",
                                  "graph 4 begins in pool 72"));
}

TEST_F(GraphCapturerTest, AProofThatFailsEndsItsPool) {
  error_ = 0.5F;
  EXPECT_FALSE(Capture().ok());
  error_ = 0;
  EXPECT_TRUE(Capture().ok());
  EXPECT_EQ(fake_.pools, 72U);
}

// If the device ends a capture, the state of its pool in the allocator is unknown.
TEST_F(GraphCapturerTest, ACaptureThatFailsLeavesItsPoolToTheGraphsThatLive) {
  const auto lives = Capture();
  ASSERT_TRUE(lives.ok()) << lives.status();
  fake_.no_end = "capture invalidated";
  const absl::Status refused = Capture().status();
  EXPECT_EQ(GetReason(refused).reason, graphcache::kGraphBreakReason);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("capture invalidated"));
  fake_.no_end.clear();
  EXPECT_TRUE(Capture().ok());
  EXPECT_EQ(fake_.pools, 72U);
  EXPECT_TRUE((*lives)->Replay(Inputs(4, 3)).ok());
}

TEST_F(GraphCapturerTest, OutOfMemoryIsNoGraphBreak) {
  const std::string before = Host(weight_);
  program_.run = [this](const StepInputs& in) {
    auto out = Step(in);
    TORCH_CHECK_WITH(OutOfMemoryError, !fake_.capturing, "CUDA out of memory");
    return out;
  };
  EXPECT_THROW(Capture().IgnoreError(), c10::OutOfMemoryError);
  EXPECT_EQ(Host(weight_), before);
}

// Not all memory comes from libtorch's allocator. The driver allocates its own for a graph, and so does cuBLAS for
// its workspace.
TEST_F(GraphCapturerTest, OutOfMemoryOfTheDriverIsNoGraphBreakEither) {
  const auto lives = Capture();
  ASSERT_TRUE(lives.ok()) << lives.status();
  const std::string before = Host(weight_);
  fake_.no_end = "CUDA error: out of memory\nSearch for it";
  try {
    Capture().IgnoreError();
    FAIL() << "no exception";
  } catch (const c10::Error& error) {
    EXPECT_TRUE(IsOutOfMemory(error)) << error.what();
  }
  EXPECT_EQ(Host(weight_), before);
  fake_.no_end.clear();
  EXPECT_TRUE(Capture().ok()) << "once there is memory";
  EXPECT_EQ(fake_.pools, 72U) << "the next capture leaves the pool to the graph that lives";
}

// A capture can take memory only from the driver, and cannot free any. Memory that the warm-up left cached would be
// lost to it.
TEST_F(GraphCapturerTest, WhatTheWarmUpLeavesIsFreeForTheCapture) {
  const auto inner = program_.run;
  program_.run = [&, inner](const StepInputs& in) {
    fake_.calls.emplace_back("a run");
    return inner(in);
  };
  ASSERT_TRUE(Capture().ok());
  const auto emptied = std::ranges::find(fake_.calls, "cache emptied");
  ASSERT_NE(emptied, fake_.calls.end());
  EXPECT_EQ(*(emptied - 1), "a run");
  EXPECT_EQ(*(emptied + 1), "graph 1 begins in pool 71");
}

// Adam divides a gradient by its size, so from any other state a gradient of rounding alone would move its parameter
// by a whole learning rate.
TEST_F(GraphCapturerTest, AProofBeginsInTheSteadyState) {
  std::vector<std::string> at_replay;
  program_.steady_state = [this] { weight_.fill_(0.25); };
  const std::string before = Host(weight_);
  const auto inner = program_.run;
  program_.run = [&, inner](const StepInputs& in) {
    at_replay.push_back(Host(weight_));
    return inner(in);
  };
  ASSERT_TRUE(Capture().ok());
  ASSERT_GE(at_replay.size(), 2U);
  weight_.fill_(0.25);
  EXPECT_EQ(at_replay.back(), Host(weight_));
  EXPECT_EQ(at_replay[at_replay.size() - 2], Host(weight_));
  EXPECT_EQ(at_replay.front(), before);
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
