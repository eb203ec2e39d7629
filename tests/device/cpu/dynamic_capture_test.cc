// One executable for every shape. Its results are bit-equal to the eager step, and a refusal names
// what prevents it.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>

#include "base/status.h"
#include "device/cpu/cpu_backend.h"
#include "device/cpu/executable.h"
#include "device/cpu/tape.h"

namespace permafrost::device {
namespace {

using at::Tensor;
using graphcache::StepInputs;
using testing::HasSubstr;
using DynamicTensors = std::vector<Tensor>;

// The nodes, edges and graphs of a batch.
struct Sizes {
  int64_t nodes, edges, graphs;
};
constexpr std::array<Sizes, kDynamicProbes> kProbes{{{60, 200, 9}, {31, 77, 4}, {37, 90, 7}, {52, 61, 5}}};

// A network with sums over edges and graphs between two products, as in a graph network.
struct Network {
  Network() {
    at::manual_seed(5);
    weight = at::randn({4, 4}).mul_(0.1).requires_grad_(true);
    bias = at::zeros({4}).requires_grad_(true);
  }
  // The inputs are x [nodes, 4], sources [edges], targets [edges], the graph of each node [nodes], and y [graphs, 4].
  DynamicTensors Step(const StepInputs& in) {
    const Tensor &x = in.tensors[0], &y = in.tensors[4];
    const Tensor sum = at::zeros({x.size(0), 4}).index_add(0, in.tensors[2], x.index_select(0, in.tensors[1]));
    const Tensor hidden = (at::addmm(bias, sum, weight.t()) + bias.expand({x.size(0), 4})).relu();
    const Tensor pooled = at::zeros({y.size(0), 4}).index_add(0, in.tensors[3], hidden);
    const Tensor loss = (pooled - y).square().sum() * 0.5;
    const DynamicTensors gradients = torch::autograd::grad({loss}, {weight, bias});
    const at::NoGradGuard no_grad;
    weight.sub_(gradients[0] * rate);
    bias.sub_(gradients[1] * rate);
    count.add_(1);
    return {loss.detach(), pooled.detach()};
  }
  std::vector<StateTensor> State() { return {{"weight", weight}, {"bias", bias}, {"rate", rate}, {"count", count}}; }
  StepProgram Program() {
    return {[this](const StepInputs& in) { return Step(in); }, State(), nullptr};
  }

  Tensor weight, bias, rate = at::full({}, 1e-4), count = at::zeros({}, at::kLong);
};

StepInputs BatchOfSizes(const Sizes& s, int seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return {{at::randn({s.nodes, 4}), at::randint(s.nodes, {s.edges}), at::randint(s.nodes, {s.edges}),
           at::randint(s.graphs, {s.nodes}), at::randn({s.graphs, 4})}};
}

// Makes the probes of a capture one after the other.
class Probes {
 public:
  explicit Probes(std::array<Sizes, kDynamicProbes> sizes = kProbes) : sizes_(sizes) {}
  absl::StatusOr<const StepInputs*> operator()(size_t probe) {
    batch_ = BatchOfSizes(sizes_[probe], static_cast<int>(probe));
    return &batch_;
  }

 private:
  std::array<Sizes, kDynamicProbes> sizes_;
  StepInputs batch_;
};

DynamicTensors CopiesOf(const std::vector<StateTensor>& state) {
  DynamicTensors out;
  for (const StateTensor& s : state) out.push_back(s.value.detach().clone());
  return out;
}
void ExpectEqual(const DynamicTensors& a, const DynamicTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
}

class DynamicCaptureTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    InstallStorageAllocator();
    ASSERT_TRUE(CheckRecording().ok()) << CheckRecording();
  }
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const Probes& probes = Probes()) {
    return CaptureDynamicOnCpu(program, probes, arena_);
  }
  // Returns the reason why `program` can have no dynamic executable. Expects its state to be unchanged.
  ErrorReason ExpectRefusal(const StepProgram& program) {
    const DynamicTensors before = CopiesOf(program.state);
    const auto captured = Capture(program);
    EXPECT_FALSE(captured.ok());
    ExpectEqual(CopiesOf(program.state), before);
    EXPECT_EQ(GetReason(captured.status()).reason, graphcache::kGraphBreakReason) << captured.status();
    return GetReason(captured.status());
  }
  static DynamicTensors Replay(graphcache::Executable& executable, const StepInputs& batch) {
    const auto result = executable.Replay(batch);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)->tensors : DynamicTensors();
  }
  static int64_t Unplanned(graphcache::Executable& executable) {
    return dynamic_cast<CpuExecutable&>(executable).unplanned_allocations();
  }

  Arena arena_;
};

// Returns sizes up to the first probe's, in no particular order.
std::vector<Sizes> ManySizes() {
  std::vector<Sizes> out;
  for (int64_t i = 0; i < 200; ++i) out.push_back({2 + i * 37 % 59, 2 + i * 61 % 199, 2 + i * 5 % 8});
  return out;
}

TEST_F(DynamicCaptureTest, OneExecutableServesEveryShapeBitForBit) {
  Network eager, replayed;
  const auto executable = Capture(replayed.Program());
  ASSERT_TRUE(executable.ok()) << executable.status();
  ExpectEqual(CopiesOf(replayed.State()), CopiesOf(eager.State()));  // the capture changed nothing
  int seed = 100;
  for (const Sizes& sizes : ManySizes()) {
    const StepInputs batch = BatchOfSizes(sizes, ++seed);
    const DynamicTensors expected = eager.Step(batch);
    ExpectEqual(Replay(**executable, batch), expected);
    ExpectEqual(CopiesOf(replayed.State()), CopiesOf(eager.State()));
  }
}

TEST_F(DynamicCaptureTest, ReplaysUpToTheLargestProbeAllocateNoStorage) {
  Network network;
  const auto executable = Capture(network.Program());
  ASSERT_TRUE(executable.ok()) << executable.status();
  (void)arena_.data();
  for (const Sizes& sizes : ManySizes()) {
    const StepInputs batch = BatchOfSizes(sizes, 3);
    const StorageUse before = ReadStorageUse();
    (void)Replay(**executable, batch);
    EXPECT_EQ(ReadStorageUse().allocations, before.allocations);
    EXPECT_EQ(ReadStorageUse().bytes, before.bytes);
    EXPECT_EQ(Unplanned(**executable), 0);
  }
}

TEST_F(DynamicCaptureTest, AShapeAboveTheLargestProbeTakesTheRestFromTheHeap) {
  Network eager, replayed;
  const auto executable = Capture(replayed.Program());
  ASSERT_TRUE(executable.ok()) << executable.status();
  const size_t arena = arena_.bytes();
  const int64_t bytes = (*executable)->bytes();
  const StepInputs batch = BatchOfSizes({500, 900, 60}, 1);
  const DynamicTensors expected = eager.Step(batch);
  ExpectEqual(Replay(**executable, batch), expected);
  EXPECT_GT(Unplanned(**executable), 0);
  EXPECT_EQ(arena_.bytes(), arena);
  EXPECT_EQ((*executable)->bytes(), bytes);
  const StepInputs small = BatchOfSizes({20, 30, 3}, 2);
  const DynamicTensors next = eager.Step(small);
  ExpectEqual(Replay(**executable, small), next);
  EXPECT_EQ(Unplanned(**executable), 0);
}

// The outputs of a replay are held while the next one runs. The next replay may overwrite them, but must be correct.
TEST_F(DynamicCaptureTest, OutputsThatOutliveTheirReplayDoNoHarm) {
  Network eager, replayed;
  const auto executable = Capture(replayed.Program());
  ASSERT_TRUE(executable.ok()) << executable.status();
  absl::StatusOr<graphcache::StepResult> held;
  int seed = 0;
  for (const Sizes& sizes : ManySizes()) {
    const StepInputs batch = BatchOfSizes(sizes, ++seed);
    const DynamicTensors expected = eager.Step(batch);
    held = (*executable)->Replay(batch);
    ASSERT_TRUE(held.ok());
    ExpectEqual((*held)->tensors, expected);
    EXPECT_EQ(Unplanned(**executable), 0);
  }
  held = absl::UnknownError("");
  arena_.Release();
}

TEST_F(DynamicCaptureTest, SizesMayEnterInSums) {
  // The sizes are nodes + 1, edges + nodes, 4 * nodes and edges - graphs.
  const StepProgram program{[](const StepInputs& in) {
                              const int64_t n = in.tensors[0].size(0), e = in.tensors[1].size(0),
                                            g = in.tensors[4].size(0);
                              return DynamicTensors{at::zeros({n + 1}), at::zeros({e + n}), in.tensors[0].view({4 * n}),
                                                    in.tensors[1].narrow(0, g, e - g).add(1)};
                            },
                            {},
                            nullptr};
  const auto executable = Capture(program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  for (const Sizes& sizes : ManySizes()) {
    if (sizes.edges <= sizes.graphs) continue;
    const StepInputs batch = BatchOfSizes(sizes, 6);
    const DynamicTensors expected = program.run(batch);
    ExpectEqual(Replay(**executable, batch), expected);
  }
}

TEST_F(DynamicCaptureTest, BatchesOfAnotherKindAreRefused) {
  Network network;
  const auto executable = Capture(network.Program());
  ASSERT_TRUE(executable.ok()) << executable.status();
  StepInputs bad = BatchOfSizes({20, 30, 3}, 1);
  bad.tensors[2] = bad.tensors[2].narrow(0, 0, 29);  // one target fewer than sources
  EXPECT_THROW((void)(*executable)->Replay(bad), c10::Error);
  bad = BatchOfSizes({20, 30, 3}, 1);
  bad.tensors[0] = at::randn({20, 5});
  EXPECT_THROW((void)(*executable)->Replay(bad), c10::Error);
  bad = BatchOfSizes({20, 30, 3}, 1);
  bad.tensors[3] = Tensor();
  EXPECT_THROW((void)(*executable)->Replay(bad), c10::Error);
  Network eager;
  const StepInputs batch = BatchOfSizes({20, 30, 3}, 2);
  const DynamicTensors expected = eager.Step(batch);
  ExpectEqual(Replay(**executable, batch), expected);
}

TEST_F(DynamicCaptureTest, ExecutablesOfBothKindsShareTheArena) {
  Network eager, replayed;
  const StepProgram program = replayed.Program();
  const auto dynamic = Capture(program);
  const auto fixed = CaptureOnCpu(program, BatchOfSizes({20, 30, 3}, 1), BatchOfSizes({20, 30, 3}, 2), arena_);
  ASSERT_TRUE(dynamic.ok() && fixed.ok());
  for (int i = 0; i < 20; ++i) {
    const StepInputs batch = BatchOfSizes({20, 30, 3}, i);
    const DynamicTensors expected = eager.Step(batch);
    ExpectEqual(Replay(i % 2 == 0 ? **dynamic : **fixed, batch), expected);
  }
}

// ---- Steps without a dynamic executable

TEST_F(DynamicCaptureTest, AnIntegerThatNoSizeGivesIsNamed) {
  const StepProgram program{[](const StepInputs& in) {
                              const int64_t n = in.tensors[0].size(0);
                              return DynamicTensors{at::zeros({3, n * n}) + in.tensors[0].sum()};
                            },
                            {},
                            nullptr};
  const ErrorReason refusal = ExpectRefusal(program);
  EXPECT_EQ(refusal.metadata.at("op"), "aten::zeros");
  EXPECT_THAT(refusal.metadata.at("why"), HasSubstr("size[1] is 3600, 961, 1369, 2704"));
}

TEST_F(DynamicCaptureTest, AHostNumberThatFollowsAValueIsNamed) {
  const StepProgram program{[](const StepInputs& in) {
                              return DynamicTensors{in.tensors[0] * (1.0 / static_cast<double>(in.tensors[0].size(0)))};
                            },
                            {},
                            nullptr};
  const ErrorReason refusal = ExpectRefusal(program);
  EXPECT_EQ(refusal.metadata.at("op"), "aten::mul");
  EXPECT_THAT(refusal.metadata.at("why"), HasSubstr("a host value that changes"));
}

// This rule holds at the first shapes, but not at the last.
TEST_F(DynamicCaptureTest, TheLastShapeChecksWhatTheOthersSay) {
  const StepProgram program{[](const StepInputs& in) {
                              const int64_t n = in.tensors[0].size(0);
                              return DynamicTensors{at::zeros({n == 52 ? 53 : n}) + in.tensors[0].sum()};
                            },
                            {},
                            nullptr};
  EXPECT_THAT(ExpectRefusal(program).metadata.at("why"), HasSubstr("gives 52 for the last"));
}

TEST_F(DynamicCaptureTest, AnotherPathAtAnotherShapeIsNamed) {
  const StepProgram program{[](const StepInputs& in) {
                              const bool large = in.tensors[0].size(0) > 50;
                              return DynamicTensors{large ? in.tensors[0].sum() : in.tensors[0].mean()};
                            },
                            {},
                            nullptr};
  EXPECT_THAT(ExpectRefusal(program).metadata.at("why"), HasSubstr("aten::mean"));
}

// A loop on the host over the rows, which no dispatcher sees.
TEST_F(DynamicCaptureTest, WorkThatIsNotDispatchedIsFound) {
  Network network;
  const StepProgram program{[&](const StepInputs& in) {
                              float* bias = network.bias.mutable_data_ptr<float>();
                              bias[0] += in.tensors[0].const_data_ptr<float>()[0];
                              return DynamicTensors{in.tensors[0].sum()};
                            },
                            network.State(), nullptr};
  EXPECT_THAT(ExpectRefusal(program).metadata.at("why"), HasSubstr("a replay leaves bias otherwise"));
}

TEST_F(DynamicCaptureTest, AnErrorOfTheProbesPassesAndLeavesTheStateAlone) {
  Network network;
  const DynamicTensors before = CopiesOf(network.State());
  Probes probes;
  const auto captured = CaptureDynamicOnCpu(
      network.Program(),
      [&](size_t probe) -> absl::StatusOr<const StepInputs*> {
        if (probe == 2) return absl::DataLossError("the file changed");
        return probes(probe);
      },
      arena_);
  EXPECT_EQ(captured.status(), absl::DataLossError("the file changed"));
  ExpectEqual(CopiesOf(network.State()), before);
}

// The executables of a ladder, made from one recording at small shapes, the largest first. Their results are
// bit-equal to the eager step.
TEST_F(DynamicCaptureTest, RungsOfOneRecordingAreBitEqualAndShareThePlanOfTheLargest) {
  Network eager, replayed;
  const StepProgram program = replayed.Program();
  auto recorded = RecordOnCpu(program, Probes({{{9, 20, 3}, {5, 12, 2}, {7, 31, 6}, {12, 15, 4}}}));
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const std::vector<Sizes> rungs{{60, 200, 9}, {60, 150, 9}, {31, 77, 4}, {8, 16, 9}};
  std::vector<std::unique_ptr<graphcache::Executable>> executables;
  for (const Sizes& rung : rungs) {
    auto made = CaptureRungOnCpu(program, BatchOfSizes(rung, 1), *recorded, arena_);
    ASSERT_TRUE(made.ok()) << made.status();
    executables.push_back(*std::move(made));
    EXPECT_EQ(recorded->planned.size(), recorded->sizes.count());
  }
  ExpectEqual(CopiesOf(replayed.State()), CopiesOf(eager.State()));  // the captures changed nothing
  for (int seed = 100; seed < 120; ++seed) {
    const size_t rung = static_cast<size_t>(seed) % rungs.size();
    const StepInputs batch = BatchOfSizes(rungs[rung], seed);
    const DynamicTensors expected = eager.Step(batch);
    ExpectEqual(Replay(*executables[rung], batch), expected);
    ExpectEqual(CopiesOf(replayed.State()), CopiesOf(eager.State()));
    EXPECT_EQ(Unplanned(*executables[rung]), 0);
  }
}

// If a step calls an operator at one shape only, the recording lacks it. Comparing the results at that shape finds
// it.
TEST_F(DynamicCaptureTest, ARungWhoseStepIsAnotherThanTheRecordedOneIsRefused) {
  Network network;
  StepProgram program = network.Program();
  program.run = [&network](const StepInputs& in) {
    DynamicTensors out = network.Step(in);
    if (in.tensors[0].size(0) == 31) out[1] = out[1] + 0;
    return out;
  };
  auto recorded = RecordOnCpu(program, Probes({{{9, 20, 3}, {5, 12, 2}, {7, 31, 6}, {12, 15, 4}}}));
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  EXPECT_TRUE(CaptureRungOnCpu(program, BatchOfSizes({60, 200, 9}, 1), *recorded, arena_).ok());
  const DynamicTensors before = CopiesOf(program.state);
  const auto refused = CaptureRungOnCpu(program, BatchOfSizes({31, 77, 4}, 1), *recorded, arena_);
  EXPECT_EQ(GetReason(refused.status()).reason, graphcache::kGraphBreakReason) << refused.status();
  ExpectEqual(CopiesOf(program.state), before);
}

// This integer follows from the sizes of every probe, but not from those of the rung.
TEST_F(DynamicCaptureTest, ARungWithAnIntegerThatIsAnotherThanTheRecordingSaysIsRefusedByName) {
  Network network;
  StepProgram program = network.Program();
  program.run = [&network](const StepInputs& in) {
    DynamicTensors out = network.Step(in);
    const int64_t rows = in.tensors[0].size(0);
    out[1] = out[1] + at::zeros({rows > 20 ? rows + 1 : rows, 1}).sum();
    return out;
  };
  auto recorded = RecordOnCpu(program, Probes({{{9, 20, 3}, {5, 12, 2}, {7, 31, 6}, {12, 15, 4}}}));
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const auto refused = CaptureRungOnCpu(program, BatchOfSizes({60, 200, 9}, 1), *recorded, arena_);
  const ErrorReason reason = GetReason(refused.status());
  EXPECT_EQ(reason.reason, graphcache::kGraphBreakReason) << refused.status();
  EXPECT_EQ(reason.metadata.at("op"), "aten::zeros");
  EXPECT_THAT(reason.metadata.at("why"),
              HasSubstr("size[0] is 61 at one more shape: what gives the recorded ones gives 60"));
}

// This batch is unlike the recorded ones: its sizes do not fit together in the same way.
TEST_F(DynamicCaptureTest, ARungOfAnotherKindThanTheRecordedBatchesIsABreakThatNamesTheInput) {
  Network network;
  const StepProgram program = network.Program();
  const DynamicTensors before = CopiesOf(program.state);
  const auto refuse = [&](const StepInputs& batch, const std::string& why) {
    auto recorded = RecordOnCpu(program, Probes({{{9, 20, 3}, {5, 12, 2}, {7, 31, 6}, {12, 15, 4}}}));
    ASSERT_TRUE(recorded.ok()) << recorded.status();
    const auto refused = CaptureRungOnCpu(program, batch, *recorded, arena_);
    const ErrorReason reason = GetReason(refused.status());
    EXPECT_EQ(reason.reason, graphcache::kGraphBreakReason) << refused.status();
    EXPECT_THAT(reason.metadata.at("why"), HasSubstr(why));
    ExpectEqual(CopiesOf(program.state), before);
  };
  StepInputs bad = BatchOfSizes({20, 30, 3}, 1);
  bad.tensors[2] = bad.tensors[2].narrow(0, 0, 29);  // one target fewer than sources
  refuse(bad, "at one more shape input 2 of a captured step has 29 in dimension 0 where 30 goes with the rest");
  bad = BatchOfSizes({20, 30, 3}, 1);
  bad.tensors[3] = Tensor();
  refuse(bad, "input 3 of a captured step is missing");
  bad = BatchOfSizes({20, 30, 3}, 1);
  bad.tensors[4] = bad.tensors[4].to(at::kDouble);
  refuse(bad, "input 4 of a captured step is of another type or rank");
}

}  // namespace
}  // namespace permafrost::device
