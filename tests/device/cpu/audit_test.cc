// Audited replays. They leave the state that the step leaves, and name the operator that went wrong.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "device/cpu/audit.h"
#include "device/cpu/cpu_backend.h"
#include "device/cpu/tape.h"
#include "faulty_operator.h"

namespace permafrost::device {
namespace {

using at::Tensor;
using graphcache::AuditedStep;
using graphcache::StepInputs;
using testing::HasSubstr;
using AuditTensors = std::vector<Tensor>;

// A network with y = relu(x w^T) for sums of rows, the squared error, a gradient step, and a count that an operator
// of this test raises.
struct AuditedNetwork {
  AuditedNetwork() {
    at::manual_seed(5);
    weight = at::randn({4, 4}).mul_(0.1).requires_grad_(true);
  }
  // The inputs are x [rows, 4], y [rows, 4] and the target row of each x [rows].
  AuditTensors Step(const StepInputs& in) {
    const Tensor x = CopyOf(in.tensors[0]);
    NoteLine("net.py:1");
    const Tensor sum = at::zeros({x.size(0), 4}).index_add(0, in.tensors[2], x);
    NoteLine("net.py:2");
    Tensor prediction = at::mm(sum, weight.t());
    NoteLine("net.py:3");
    prediction = prediction.relu();
    NoteLine("");
    const Tensor loss = (prediction - in.tensors[1]).square().sum() * 0.5;
    const AuditTensors gradients = torch::autograd::grad({loss}, {weight});
    const at::NoGradGuard no_grad;
    weight.sub_(gradients[0] * rate);
    CountUp(count);
    return {loss.detach(), prediction.detach()};
  }
  StepProgram Program() {
    return {[this](const StepInputs& in) { return Step(in); },
            {{"weight", weight}, {"rate", rate}, {"count", count}},
            nullptr};
  }

  Tensor weight, rate = at::full({}, 1e-3), count = at::zeros({});
};

StepInputs RowsOf(int64_t rows, int seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return {{at::randn({rows, 4}), at::randn({rows, 4}), at::randint(rows, {rows})}};
}

class CpuAuditTest : public testing::TestWithParam<bool> {  // the parameter is true for a dynamic executable
 protected:
  static void SetUpTestSuite() {
    InstallStorageAllocator();
    ASSERT_TRUE(CheckRecording().ok()) << CheckRecording();
  }
  void SetUp() override {
    operator_fault = OperatorFault::kNone;
    absl::StatusOr<std::unique_ptr<graphcache::Executable>> made;
    if (GetParam()) {
      StepInputs probe;
      made = CaptureDynamicOnCpu(
          program_,
          [&](size_t k) -> absl::StatusOr<const StepInputs*> {
            probe = RowsOf(std::array<int64_t, kDynamicProbes>{40, 17, 23, 31}[k], static_cast<int>(k));
            return &probe;
          },
          arena_);
    } else {
      made = CaptureOnCpu(program_, RowsOf(23, 1), RowsOf(23, 2), arena_);
    }
    ASSERT_TRUE(made.ok()) << made.status();
    executable_ = *std::move(made);
  }
  void TearDown() override { operator_fault = OperatorFault::kNone; }
  AuditedStep Audit(const StepInputs& inputs) {
    auto audited = executable_->ReplayAudited(inputs);
    EXPECT_TRUE(audited.ok()) << audited.status();
    EXPECT_TRUE(audited.ok() && audited->has_value());
    return audited.ok() && audited->has_value() ? **audited : AuditedStep();
  }
  void ExpectStateOf(const AuditedNetwork& eager) const {
    EXPECT_TRUE(audited_.weight.equal(eager.weight));
    EXPECT_TRUE(audited_.count.equal(eager.count)) << audited_.count << " against " << eager.count;
  }

  AuditedNetwork audited_;
  const StepProgram program_ = audited_.Program();
  Arena arena_;
  std::unique_ptr<graphcache::Executable> executable_;
};

INSTANTIATE_TEST_SUITE_P(CpuAudit, CpuAuditTest, testing::Bool(),
                         [](const auto& suite) { return suite.param ? "dynamic" : "exact"; });

TEST_P(CpuAuditTest, AnAuditChangesNoBit) {
  AuditedNetwork eager;
  for (int i = 0; i < 12; ++i) {
    const StepInputs batch = RowsOf(23, 100 + i);
    const AuditTensors expected = eager.Step(batch);
    if (i % 3 == 2) {
      ASSERT_TRUE(executable_->Replay(batch).ok());
    } else {
      const AuditedStep step = Audit(batch);
      EXPECT_FALSE(step.difference) << step.difference->op << ": " << step.difference->why;
      ASSERT_EQ(step.result->tensors.size(), expected.size());
      for (size_t k = 0; k < expected.size(); ++k) EXPECT_TRUE(step.result->tensors[k].equal(expected[k]));
    }
    ExpectStateOf(eager);
  }
}

TEST_P(CpuAuditTest, ItTimesTheReplayByOperator) {
  const AuditedStep step = Audit(RowsOf(23, 7));
  double sum = 0;
  int64_t products = 0, copies = 0;
  for (size_t i = 0; i < step.operators.size(); ++i) {
    const graphcache::OperatorTime& time = step.operators[i];
    EXPECT_GE(time.seconds, 0);
    if (i > 0) {
      EXPECT_LE(time.seconds, step.operators[i - 1].seconds) << "the longest first";
    }
    sum += time.seconds;
    if (time.op == "aten::mm") products = time.calls;
    if (time.op == "faulty::copy") copies = time.calls;
  }
  EXPECT_EQ(products, 2) << "forward, and the gradient of the weight";
  EXPECT_EQ(copies, 1);
  EXPECT_GT(step.product_seconds, 0);
  EXPECT_GT(sum, 0);
  EXPECT_LE(sum, step.replay_seconds);
  EXPECT_GT(step.eager_seconds, 0);
}

TEST_P(CpuAuditTest, ItTimesTheReplayByLine) {
  const AuditedStep step = Audit(RowsOf(23, 7));
  double sum = 0;
  std::vector<std::string> lines, with_gradient;
  for (const graphcache::LineTime& time : step.lines) {
    EXPECT_GT(time.forward_seconds, 0) << time.line;
    lines.push_back(time.line);
    if (time.backward_seconds > 0) with_gradient.push_back(time.line);
    if (lines.size() > 1) {
      EXPECT_LE(time.seconds(), step.lines[lines.size() - 2].seconds()) << "the longest first";
    }
    sum += time.seconds();
  }
  EXPECT_THAT(lines, testing::UnorderedElementsAre("net.py:1", "net.py:2", "net.py:3"));
  // The first line reads no weight, so it has no gradient.
  EXPECT_THAT(with_gradient, testing::UnorderedElementsAre("net.py:2", "net.py:3"));
  double of_operators = 0;
  for (const graphcache::OperatorTime& time : step.operators) of_operators += time.seconds;
  EXPECT_LT(sum, of_operators) << "the loss and the optimizer belong to no line";
}

TEST_P(CpuAuditTest, AFaultInOneOperatorOfALiveExecutableIsFoundAndNamed) {
  AuditedNetwork eager;
  const StepInputs batch = RowsOf(23, 7);
  const AuditTensors expected = eager.Step(batch);
  operator_fault = OperatorFault::kInReplays;
  const AuditedStep step = Audit(batch);
  ASSERT_TRUE(step.difference);
  EXPECT_EQ(step.difference->op, "faulty::copy") << step.difference->why;
  EXPECT_EQ(step.difference->why, "its result 0, of type Float and shape [23, 4], has other bits in the replay");
  ExpectStateOf(eager);
  EXPECT_TRUE(step.result->tensors[1].equal(expected[1])) << "the eager step's";
}

// Nothing else reads what this operator writes, and it returns nothing.
TEST_P(CpuAuditTest, AFaultInAnOperatorThatOnlyWritesIsNamedToo) {
  const StepInputs batch = RowsOf(23, 7);
  struct CountsOnly {
    Tensor count = at::zeros({});
    AuditTensors Step(const StepInputs& /*in*/) const {
      const at::NoGradGuard no_grad;
      CountUp(count);
      return {};
    }
  } counts;
  const StepProgram program{[&](const StepInputs& in) { return counts.Step(in); }, {{"count", counts.count}}, nullptr};
  auto made = CaptureOnCpu(program, RowsOf(23, 1), RowsOf(23, 2), arena_);
  ASSERT_TRUE(made.ok()) << made.status();
  operator_fault = OperatorFault::kInReplays;
  const auto step = (*made)->ReplayAudited(batch);
  ASSERT_TRUE(step.ok() && step->has_value() && (*step)->difference);
  EXPECT_EQ((*step)->difference->op, "faulty::count_up_");
  EXPECT_EQ(counts.count.item<float>(), 1.0F);
}

TEST_P(CpuAuditTest, AFaultThatIsGoneWhenItIsLookedForHasNoOperator) {
  AuditedNetwork eager;
  const StepInputs batch = RowsOf(23, 7);
  eager.Step(batch);
  operator_fault = OperatorFault::kOnce;
  const AuditedStep step = Audit(batch);
  ASSERT_TRUE(step.difference);
  EXPECT_EQ(step.difference->op, "");
  EXPECT_THAT(step.difference->why, HasSubstr("no operator of a second replay"));
  ExpectStateOf(eager);
}

TEST_P(CpuAuditTest, AStepThatIsNeverTheSameIsToldFromAReplayThatIsNot) {
  operator_fault = OperatorFault::kEachCall;
  const AuditedStep step = Audit(RowsOf(23, 7));
  ASSERT_TRUE(step.difference);
  EXPECT_THAT(step.difference->why, HasSubstr("run eagerly twice from one state"));
}

TEST_P(CpuAuditTest, TheStateIsAsBeforeWhereTheStepThrows) {
  const AuditedNetwork before;
  StepInputs batch = RowsOf(23, 7);
  struct Throwing {
    AuditedNetwork& network;
    bool throws = false;
  } throwing{audited_};
  const StepProgram program{[&](const StepInputs& in) {
                              AuditTensors outputs = throwing.network.Step(in);
                              TORCH_CHECK(!throwing.throws, "the step fails");
                              return outputs;
                            },
                            program_.state, nullptr};
  auto made = CaptureOnCpu(program, RowsOf(23, 1), RowsOf(23, 2), arena_);
  ASSERT_TRUE(made.ok()) << made.status();
  throwing.throws = true;
  EXPECT_ANY_THROW((void)(*made)->ReplayAudited(batch));
  ExpectStateOf(before);
}

}  // namespace
}  // namespace permafrost::device
