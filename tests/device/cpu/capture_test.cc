#include "device/cpu/cpu_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <set>

#ifdef __linux__
#include <malloc.h>
#endif

#include "base/status.h"
#include "device/cpu/executable.h"
#include "device/cpu/tape.h"

namespace permafrost::device {
namespace {

using at::Tensor;
using graphcache::StepInputs;
using testing::HasSubstr;
using Tensors = std::vector<Tensor>;

// A regression with y = relu(x w^T + b), the squared error, a gradient step with a rate that is a tensor, and a count
// of steps.
struct Regression {
  Regression() {
    at::manual_seed(5);
    weight = at::randn({3, 4}).requires_grad_(true);
    bias = at::zeros({3}).requires_grad_(true);
  }
  Tensors Step(const StepInputs& in) {
    const Tensor prediction = at::addmm(bias, in.tensors[0], weight.t()).relu();
    const Tensor loss = (prediction - in.tensors[1]).square().sum() * 0.5;
    const Tensors gradients = torch::autograd::grad({loss}, {weight, bias});
    const at::NoGradGuard no_grad;
    weight.sub_(gradients[0] * rate);
    bias.sub_(gradients[1] * rate);
    count.add_(1);
    return {loss.detach(), prediction.detach()};
  }
  std::vector<StateTensor> State() { return {{"weight", weight}, {"bias", bias}, {"rate", rate}, {"count", count}}; }

  Tensor weight, bias, rate = at::full({}, 0.01), count = at::zeros({}, at::kLong);
};

StepInputs Batch(int64_t rows, int seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return {{at::randn({rows, 4}), at::randn({rows, 3})}};
}

Tensors Clones(const std::vector<StateTensor>& state) {
  Tensors out;
  for (const StateTensor& s : state) out.push_back(s.value.detach().clone());
  return out;
}
void ExpectSame(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i << ": " << a[i] << " against " << b[i];
}

Tensors Outputs(const absl::StatusOr<graphcache::StepResult>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? (*result)->tensors : Tensors();
}

class CaptureTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    InstallStorageAllocator();
    ASSERT_TRUE(CheckRecording().ok()) << CheckRecording();
  }
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program, int64_t rows = 6) {
    return CaptureOnCpu(program, Batch(rows, 1), Batch(rows, 2), arena_);
  }
  // Returns the reason why `program` cannot be captured. Expects its state to be unchanged.
  ErrorReason ExpectBreak(const StepProgram& program) {
    const Tensors before = Clones(program.state);
    const auto captured = Capture(program);
    EXPECT_FALSE(captured.ok());
    ExpectSame(Clones(program.state), before);
    EXPECT_EQ(captured.status().code(), absl::StatusCode::kFailedPrecondition) << captured.status();
    EXPECT_EQ(GetReason(captured.status()).reason, graphcache::kGraphBreakReason);
    return GetReason(captured.status());
  }

  Arena arena_;
};

TEST_F(CaptureTest, ReplaysAreBitEqualToTheStep) {
  Regression eager, replayed;
  const StepProgram program{[&](const StepInputs& in) { return replayed.Step(in); }, replayed.State(), nullptr};
  const auto executable = Capture(program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  ExpectSame(Clones(replayed.State()), Clones(eager.State()));  // the capture changed nothing
  for (int i = 0; i < 20; ++i) {
    const StepInputs batch = Batch(6, 100 + i);
    const Tensors expected = eager.Step(batch);
    ExpectSame(Outputs((*executable)->Replay(batch)), expected);
    ExpectSame(Clones(replayed.State()), Clones(eager.State()));
  }
  EXPECT_EQ(replayed.count.item<int64_t>(), 20);
}

TEST_F(CaptureTest, ALearningRateInATensorIsNoConstant) {
  Regression eager, replayed;
  const StepProgram program{[&](const StepInputs& in) { return replayed.Step(in); }, replayed.State(), nullptr};
  const auto executable = Capture(program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  for (const double rate : {0.01, 0.5, 0.0}) {
    eager.rate.fill_(rate);
    replayed.rate.fill_(rate);
    const StepInputs batch = Batch(6, 7);
    eager.Step(batch);
    ASSERT_TRUE((*executable)->Replay(batch).ok());
    ExpectSame(Clones(replayed.State()), Clones(eager.State()));
  }
}

TEST_F(CaptureTest, AReplayAllocatesNoStorage) {
  Regression r;
  const StepProgram program{[&](const StepInputs& in) { return r.Step(in); }, r.State(), nullptr};
  const auto executable = Capture(program, 500);
  ASSERT_TRUE(executable.ok()) << executable.status();
  const StepInputs batch = Batch(500, 3);
  const StorageUse before = ReadStorageUse();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*executable)->Replay(batch).ok());
  EXPECT_EQ(ReadStorageUse().allocations, before.allocations);
  EXPECT_EQ(ReadStorageUse().bytes, before.bytes);
  EXPECT_EQ(dynamic_cast<CpuExecutable&>(**executable).unplanned_allocations(), 0);
}

TEST_F(CaptureTest, ExecutablesShareTheArena) {
  Regression r;
  const StepProgram program{[&](const StepInputs& in) { return r.Step(in); }, r.State(), nullptr};
  const auto small = Capture(program, 100);
  ASSERT_TRUE(small.ok()) << small.status();
  const size_t of_small = arena_.bytes();
  const auto large = Capture(program, 1000);
  ASSERT_TRUE(large.ok()) << large.status();
  const size_t of_both = arena_.bytes();
  EXPECT_GT(of_both, of_small);
  EXPECT_LT(of_both, 11 * of_small) << "the larger plan, not the sum";
  // The arena moved, but the first executable still works.
  Regression eager;
  const StepInputs batch = Batch(100, 9);
  ExpectSame(Clones(r.State()), Clones(eager.State()));
  const Tensors expected = eager.Step(batch);
  ExpectSame(Outputs((*small)->Replay(batch)), expected);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)  // glibc's malloc reports what it allocated
TEST_F(CaptureTest, BytesAreWhatTheAllocatorGave) {
  Regression r;
  const StepProgram program{[&](const StepInputs& in) { return r.Step(in); }, r.State(), nullptr};
  (void)Capture(program);  // libtorch keeps some memory after a first use
  std::vector<std::unique_ptr<graphcache::Executable>> kept;
  kept.reserve(100);
  const size_t before = mallinfo2().uordblks;
  int64_t bytes = 0;
  for (int i = 0; i < 100; ++i) {
    auto executable = Capture(program);
    ASSERT_TRUE(executable.ok()) << executable.status();
    bytes += (*executable)->bytes();
    kept.push_back(*std::move(executable));
  }
  const auto allocated = static_cast<double>(mallinfo2().uordblks - before);
  EXPECT_GT(static_cast<double>(bytes), 0.9 * allocated);
  EXPECT_LT(static_cast<double>(bytes), 1.1 * allocated);
}
#endif

TEST_F(CaptureTest, ViewsOfParametersAreMadeOnceAndUnreadResultsDropped) {
  Regression r;
  const StepProgram program{[&](const StepInputs& in) {
                              (void)(in.tensors[0] * 3).exp();  // nothing reads this result
                              return r.Step(in);
                            },
                            r.State(), nullptr};
  const StepInputs batch = Batch(6, 1);
  Tape tape(program.state);
  tape.Record(batch.tensors, [&] { return program.run(batch); });
  const auto executable = Capture(program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  // Replays skip at least weight.t(), mul and exp.
  EXPECT_LE(dynamic_cast<CpuExecutable&>(**executable).num_calls() + 3, tape.ops().size());
}

TEST_F(CaptureTest, PhasesAreToldByReplaysOnly) {
  Regression r;
  std::vector<int> told;
  const auto on_phase = [&](int phase) { told.push_back(phase); };
  const StepProgram program{[&](const StepInputs& in) {
                              MarkPhase(1, on_phase);
                              Tensors out = r.Step(in);
                              MarkPhase(2, on_phase);
                              return out;
                            },
                            r.State(), on_phase};
  const auto executable = Capture(program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_THAT(told, testing::IsEmpty());
  ASSERT_TRUE((*executable)->Replay(Batch(6, 3)).ok());
  EXPECT_THAT(told, testing::ElementsAre(1, 2));
}

TEST_F(CaptureTest, AReplayThatFailsLeavesTheExecutableUsable) {
  Regression eager, replayed;
  const StepProgram program{[&](const StepInputs& in) { return replayed.Step(in); }, replayed.State(), nullptr};
  const auto executable = Capture(program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  StepInputs bad = Batch(6, 1);
  bad.tensors[1] = at::randn({5, 3});  // differs from the captured shape
  EXPECT_THROW((void)(*executable)->Replay(bad), c10::Error);
  const StepInputs batch = Batch(6, 2);
  const Tensors expected = eager.Step(batch);
  ExpectSame(Outputs((*executable)->Replay(batch)), expected);
}

// When a step frees a storage, the next one may get the same address. The tape must treat them as two tensors.
TEST_F(CaptureTest, StoragesThatFollowEachOtherAtOneAddressAreTold) {
  const std::vector<StateTensor> no_state;
  Tape tape(no_state);
  const StepInputs batch = Batch(6, 1);
  std::set<const void*> addresses;
  tape.Record(batch.tensors, [&] {
    for (int i = 0; i < 50; ++i) addresses.insert((batch.tensors[0] * 2).storage().data());
    return Tensors{batch.tensors[0] * 3};
  });
  ASSERT_FALSE(tape.broken()) << tape.broken()->why;
  std::set<size_t> made;
  for (const Tape::Op& op : tape.ops()) made.insert(op.returns.at(0).at(0));
  EXPECT_EQ(made.size(), 51U);
  EXPECT_LT(addresses.size(), 51U) << "the recording kept what the step freed";
}

TEST_F(CaptureTest, AViewThatIsAListIsReplayed) {
  Regression r;
  const StepProgram program{[&](const StepInputs& in) {
                              const at::NoGradGuard no_grad;
                              return Tensors{in.tensors[0].mm(at::unsafe_split(r.weight, 3)[0].t()),
                                             in.tensors[0].mm(at::split(r.weight, 3)[0].t())};
                            },
                            r.State(), nullptr};
  const auto executable = Capture(program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  const StepInputs batch = Batch(6, 4);
  const Tensors expected = program.run(batch);
  ExpectSame(Outputs((*executable)->Replay(batch)), expected);
}

// ---- Graph breaks

TEST_F(CaptureTest, AStepCountOnTheHostIsAGraphBreak) {
  // torch::optim::Adam does this: the bias correction is a host number that changes with each step.
  Regression r;
  int64_t steps = 0;
  const StepProgram program{[&](const StepInputs& in) {
                              const at::NoGradGuard no_grad;
                              r.bias.mul_(1 - std::pow(0.9, static_cast<double>(++steps)));
                              return Tensors{in.tensors[0].sum()};
                            },
                            r.State(), nullptr};
  const ErrorReason broken = ExpectBreak(program);
  EXPECT_EQ(broken.metadata.at("op"), "aten::mul_");
  EXPECT_THAT(broken.metadata.at("why"), HasSubstr("in one step and 0.18999999999999995 in the next"));
}

TEST_F(CaptureTest, AHostIntegerAmongTheArgumentsIsAGraphBreak) {
  int64_t shift = 0;
  const StepProgram program{
      [&](const StepInputs& in) { return Tensors{at::roll(in.tensors[0], ++shift)}; }, {}, nullptr};
  const ErrorReason broken = ExpectBreak(program);
  EXPECT_EQ(broken.metadata.at("op"), "aten::roll");
  EXPECT_THAT(broken.metadata.at("why"), HasSubstr("shifts is [1] in one step and [2] in the next"));
}

TEST_F(CaptureTest, AValueReadBackIsAGraphBreak) {
  Regression r;
  const StepProgram program{[&](const StepInputs& in) {
                              const at::NoGradGuard no_grad;
                              if (in.tensors[0].sum().item<float>() > 1e9F) r.bias.zero_();
                              return Tensors{in.tensors[0].sum()};
                            },
                            r.State(), nullptr};
  EXPECT_EQ(ExpectBreak(program).metadata.at("op"), "aten::_local_scalar_dense");
}

TEST_F(CaptureTest, AShapeThatDependsOnValuesIsAGraphBreak) {
  const StepProgram program{
      [](const StepInputs& in) { return Tensors{in.tensors[0].masked_select(in.tensors[0] > 0).sum()}; }, {}, nullptr};
  EXPECT_EQ(ExpectBreak(program).metadata.at("op"), "aten::masked_select");
}

TEST_F(CaptureTest, AGeneratorIsAGraphBreakAndIsPutBack) {
  const StepProgram program{[](const StepInputs& in) {
                              return Tensors{in.tensors[0] + at::rand({6, 4})};
                            },
                            {},
                            nullptr};
  at::manual_seed(11);
  const Tensor expected = at::rand({3});
  const StepInputs first = Batch(6, 1), second = Batch(6, 2);
  at::manual_seed(11);
  const auto captured = CaptureOnCpu(program, first, second, arena_);
  ASSERT_FALSE(captured.ok());
  EXPECT_THAT(GetReason(captured.status()).metadata.at("why"), HasSubstr("generator"));
  EXPECT_TRUE(at::rand({3}).equal(expected));
}

TEST_F(CaptureTest, AnUndeclaredTensorIsAGraphBreak) {
  const Tensor forgotten = at::ones({4});
  const StepProgram program{[&](const StepInputs& in) { return Tensors{in.tensors[0] + forgotten}; }, {}, nullptr};
  const ErrorReason broken = ExpectBreak(program);
  EXPECT_EQ(broken.metadata.at("op"), "aten::add");
  EXPECT_THAT(broken.metadata.at("why"), HasSubstr("neither an input nor state"));
}

TEST_F(CaptureTest, WritingToAnInputIsAGraphBreak) {
  const StepProgram program{
      [](const StepInputs& in) { return Tensors{in.tensors[0].narrow(0, 0, 1).mul_(2)}; }, {}, nullptr};
  EXPECT_THAT(ExpectBreak(program).metadata.at("why"), HasSubstr("writes to an input"));
}

// A loop on the host over the data, which no dispatcher sees.
TEST_F(CaptureTest, WorkThatIsNotDispatchedIsAGraphBreak) {
  Regression r;
  const StepProgram program{[&](const StepInputs& in) {
                              float* bias = r.bias.mutable_data_ptr<float>();
                              bias[0] += in.tensors[0].const_data_ptr<float>()[0];
                              return Tensors{in.tensors[0].sum()};
                            },
                            r.State(), nullptr};
  const ErrorReason broken = ExpectBreak(program);
  EXPECT_EQ(broken.metadata.at("op"), "");
  EXPECT_THAT(broken.metadata.at("why"), HasSubstr("a replay leaves bias otherwise"));
}

// The number of rows that a mask selects depends on values, so the operator's temporaries have no fixed size.
TEST_F(CaptureTest, TemporariesThatDependOnValuesAreAGraphBreak) {
  const StepProgram program{[](const StepInputs& in) {
                              Tensor out = in.tensors[0].clone();
                              at::index_put_(out, {in.tensors[0].select(1, 0) > 0}, at::zeros({4}));
                              return Tensors{out};
                            },
                            {},
                            nullptr};
  StepInputs few = Batch(6, 1), many = Batch(6, 2);
  few.tensors[0].select(1, 0).fill_(-1);
  few.tensors[0][0][0] = 1;
  many.tensors[0].select(1, 0).fill_(1);
  const auto captured = CaptureOnCpu(program, few, many, arena_);
  ASSERT_FALSE(captured.ok());
  EXPECT_THAT(std::string(captured.status().message()), HasSubstr("depends on values"));
}

// A host flag takes another path in every step.
TEST_F(CaptureTest, AnotherOrderOfOperatorsIsAGraphBreak) {
  bool odd = false;
  const StepProgram program{[&](const StepInputs& in) {
                              odd = !odd;
                              return Tensors{odd ? in.tensors[0].sum() : in.tensors[0].mean()};
                            },
                            {},
                            nullptr};
  EXPECT_THAT(ExpectBreak(program).metadata.at("why"), HasSubstr("aten::mean"));
}

TEST_F(CaptureTest, AnErrorOfTheStepPassesAndLeavesTheStateAlone) {
  Regression r;
  const Tensors before = Clones(r.State());
  const StepProgram program{[&](const StepInputs& in) {
                              const at::NoGradGuard no_grad;
                              r.bias.add_(1);
                              return Tensors{in.tensors[0].mm(in.tensors[0])};  // [6, 4] x [6, 4]
                            },
                            r.State(), nullptr};
  EXPECT_THROW((void)Capture(program), c10::Error);
  ExpectSame(Clones(r.State()), before);
}

// The dispatcher does not count lists of optional tensors among tensor lists.
TEST_F(CaptureTest, IndexWithTensorsIsReplayed) {
  const StepProgram program{[](const StepInputs& in) {
                              const Tensor order = in.tensors[0].select(1, 0).argsort();
                              return Tensors{
                                  at::index(in.tensors[0], {order}),
                                  at::index(in.tensors[1], {std::nullopt, order.narrow(0, 0, 3).remainder(3)})};
                            },
                            {},
                            nullptr};
  const auto executable = Capture(program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  const StepInputs batch = Batch(6, 42);
  const Tensors expected = program.run(batch);
  ExpectSame(Outputs((*executable)->Replay(batch)), expected);
}

}  // namespace
}  // namespace permafrost::device
