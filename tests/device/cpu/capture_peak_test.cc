// The peak memory that a capture allocates, compared with that of its step. The storage allocator reports the peaks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <iostream>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "device/backend.h"
#include "device/cpu/cpu_backend.h"
#include "nn/loss.h"
#include "nn/models/model.h"
#include "nn/models/node_block_plan.h"
#include "nn/optimizer.h"

namespace permafrost::device {
namespace {

using at::Tensor;
using graphcache::StepInputs;
using Tensors = std::vector<Tensor>;

const c10::Device kCpu(c10::kCPU);

// A model in training. `forward` returns the prediction and the labels for a step's inputs.
struct Training {
  struct Output {
    Tensor prediction, labels;
  };
  Training(nn::TensorSet& tensors, spec::Loss loss_kind, std::function<Output(const StepInputs&)> forward_step)
      : optimizer({}, tensors.parameters()),
        loss(loss_kind),
        forward(std::move(forward_step)),
        at_begin(nn::Clone(optimizer.state())) {
    for (const auto& named : tensors.All()) program.state.push_back({named.name, named.value});
    for (const auto& named : optimizer.state()) program.state.push_back({named.name, named.value});
    program.run = [this](const StepInputs& in) -> Tensors {
      const Output out = forward(in);
      const nn::LossTerms terms = nn::ComputeLoss(loss, out.prediction, out.labels);
      optimizer.Step(torch::autograd::grad({terms.mean}, optimizer.parameters()));
      return {};
    };
  }
  int64_t state_bytes() const {
    int64_t bytes = 0;
    for (const StateTensor& s : program.state) bytes += static_cast<int64_t>(s.value.nbytes());
    return bytes;
  }

  // Resets the optimizer to its state before the first step of a job.
  void Begin() { nn::CopyInto(at_begin, optimizer.state()); }

  nn::Optimizer optimizer;
  const spec::Loss loss;
  const std::function<Output(const StepInputs&)> forward;
  const std::vector<nn::NamedTensor> at_begin;
  StepProgram program;
};

// Returns the peak of the bytes that `body` allocates.
int64_t PeakOf(const std::function<void()>& body) {
  RestartStoragePeak();
  const int64_t before = ReadStorageUse().bytes;
  body();
  return ReadStorageUse().peak_bytes - before;
}

// The most memory that a capture at the beginning of a job may allocate at once, as a multiple of the step's.
constexpr double kMostAtBegin = 1.3;

void ExpectFewAtBegin(std::string_view what, int64_t peak, int64_t step, const Training& training) {
  const double factor = static_cast<double>(peak) / static_cast<double>(step);
  EXPECT_LE(factor, kMostAtBegin) << what;
  std::cout << what << " at a job's begin: " << peak << " bytes at once, " << factor << " of the step's " << step
            << "; state " << training.state_bytes() << "\n";
}

// Captures twice in a job that has trained: into an empty arena, and into one that an earlier executable has filled.
// Then captures once as at the beginning of a job. `batch` makes inputs of one shape from a seed.
void ExpectWithinBound(Training& training, const std::function<StepInputs(uint64_t seed)>& batch) {
  const StepInputs first = batch(1), second = batch(2);
  training.program.run(first);  // libtorch keeps some memory after a first use
  const int64_t step = PeakOf([&] { training.program.run(first); });
  const int64_t bound = CapturePeakBytes(step, training.state_bytes());
  Arena arena, arena_at_begin;
  std::vector<std::unique_ptr<graphcache::Executable>> made;
  const auto capture_into = [&](Arena& into) {
    auto executable = CaptureOnCpu(training.program, first, second, into);
    ASSERT_TRUE(executable.ok()) << executable.status();
    made.push_back(*std::move(executable));
  };
  const auto capture = [&] { capture_into(arena); };
  const int64_t peak = PeakOf(capture);
  EXPECT_LE(peak, bound) << "step " << step << ", state " << training.state_bytes();
  EXPECT_LE(PeakOf(capture) + static_cast<int64_t>(arena.bytes()), bound) << "the arena was kept meanwhile";
  const auto audit = [&] { ASSERT_TRUE(made.back()->ReplayAudited(first).ok()); };
  EXPECT_LE(PeakOf(audit) + static_cast<int64_t>(arena.bytes()), bound) << "an audit needs no more than a capture";
  std::cout << "capture: " << peak << " bytes at once, " << static_cast<double>(peak) / static_cast<double>(step)
            << " of the step's " << step << "; state " << training.state_bytes() << ", arena " << arena.bytes() << "\n";
  training.Begin();
  ExpectFewAtBegin("capture", PeakOf([&] { capture_into(arena_at_begin); }), step, training);
}

// Same as ExpectWithinBound for a dynamic capture. The first of `batches` is the largest.
void ExpectDynamicWithinBound(Training& training, const std::vector<StepInputs>& batches) {
  training.program.run(batches[0]);
  const int64_t step = PeakOf([&] { training.program.run(batches[0]); });
  const int64_t bound = CapturePeakBytes(step, training.state_bytes());
  Arena arena, arena_at_begin;
  std::unique_ptr<graphcache::Executable> made;
  const auto capture_into = [&](Arena& into) {
    auto executable = CaptureDynamicOnCpu(
        training.program, [&](size_t probe) -> absl::StatusOr<const StepInputs*> { return &batches[probe]; }, into);
    ASSERT_TRUE(executable.ok()) << executable.status();
    made = *std::move(executable);
  };
  const auto capture = [&] { capture_into(arena); };
  EXPECT_LE(PeakOf(capture), bound) << "step " << step << ", state " << training.state_bytes();
  EXPECT_LE(PeakOf(capture) + static_cast<int64_t>(arena.bytes()), bound) << "the arena was kept meanwhile";
  training.Begin();
  ExpectFewAtBegin("dynamic", PeakOf([&] { capture_into(arena_at_begin); }), step, training);
}

// Same as ExpectWithinBound for all captures of a ladder together, largest rung first. The steps and replays of the
// smaller rungs share the arena.
void ExpectRungsWithinBound(Training& training, const std::vector<StepInputs>& rungs,
                            const std::vector<StepInputs>& small) {
  training.program.run(rungs[0]);
  const int64_t step = PeakOf([&] { training.program.run(rungs[0]); });
  const auto capture = [&] {
    Arena arena;
    std::vector<std::unique_ptr<graphcache::Executable>> made;
    auto recorded =
        RecordOnCpu(training.program, [&](size_t probe) -> absl::StatusOr<const StepInputs*> { return &small[probe]; });
    ASSERT_TRUE(recorded.ok()) << recorded.status();
    for (const StepInputs& rung : rungs) {
      auto executable = CaptureRungOnCpu(training.program, rung, *recorded, arena);
      ASSERT_TRUE(executable.ok()) << executable.status();
      made.push_back(*std::move(executable));
    }
  };
  const int64_t peak = PeakOf(capture);
  EXPECT_LE(peak, CapturePeakBytes(step, training.state_bytes())) << "step " << step;
  std::cout << "ladder: " << peak << " bytes at once, " << static_cast<double>(peak) / static_cast<double>(step)
            << " of the step's " << step << "; state " << training.state_bytes() << "\n";
  training.Begin();
  ExpectFewAtBegin("ladder", PeakOf(capture), step, training);
}

// Makes a batch whose last node is padding.
StepInputs GineBatch(uint64_t seed, int64_t graphs) {
  const int64_t nodes = 23 * graphs, edges = 50 * graphs;
  at::manual_seed(seed);
  const auto below = [](int64_t bound, at::IntArrayRef sizes) { return at::randint(bound, sizes, at::kLong); };
  return {{below(28, {nodes, 1}), below(4, {edges, 1}), below(nodes - 1, {edges}),
           std::get<0>(below(nodes - 1, {edges}).sort()), at::arange(nodes, at::kLong).div(23, "floor"),
           at::randn({graphs, 1}), at::full({1}, nodes - 1, at::kLong),
           at::full({1}, static_cast<int64_t>(seed), at::kLong)}};
}

class CapturePeakTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { InstallStorageAllocator(); }
};

TEST_F(CapturePeakTest, GineWithSmallGraphs) {
  for (const int64_t hidden : {64, 300}) {
    const auto model = nn::MakeGraphModel({.model = {.hidden_channels = hidden, .num_layers = 4, .dropout = 0.1},
                                           .node = {.categories = {28}},
                                           .edge = {.categories = {4}}},
                                          7, kCpu);
    Training training(model->tensors(), spec::Loss::kL1, [&](const StepInputs& in) -> Training::Output {
      const auto& t = in.tensors;
      return {model->Forward({.padded_graphs = t[5].size(0),
                              .node_features = t[0],
                              .edge_features = t[1],
                              .edge_source = t[2],
                              .edge_target = t[3],
                              .graph_of_node = t[4],
                              .labels = t[5],
                              .real_nodes = t[6],
                              .step = t[7]},
                             Mode::kTrain),
              t[5]};
    });
    ExpectWithinBound(training, [](uint64_t seed) { return GineBatch(seed, 32); });
    ExpectDynamicWithinBound(training, {GineBatch(1, 32), GineBatch(2, 17), GineBatch(3, 28), GineBatch(4, 21)});
    ExpectRungsWithinBound(training, {GineBatch(1, 32), GineBatch(2, 31), GineBatch(3, 28), GineBatch(4, 17)},
                           {GineBatch(5, 4), GineBatch(6, 2), GineBatch(7, 5)});
  }
}

TEST_F(CapturePeakTest, GcnOnAWholeGraph) {
  const nn::Plan plan{.real = {3000}, .padded = {3000}, .padded_edges = 40'000, .whole = true, .width = 128};
  const auto model = nn::MakeNodeModel({.model = {.architecture = spec::Architecture::kGcn,
                                                  .level = spec::ModelLevel::kNode,
                                                  .hidden_channels = 64,
                                                  .num_layers = 2,
                                                  .dropout = 0.5,
                                                  .norm = spec::Norm::kNone},
                                        .in_channels = plan.width,
                                        .num_outputs = nn::kBlockClasses},
                                       7, kCpu);
  Training training(model->tensors(), spec::Loss::kCrossEntropy, [&](const StepInputs& in) -> Training::Output {
    const auto& t = in.tensors;
    return {model->Forward({.row_ends = {3000, 3000, 3000},
                            .features = t[0],
                            .offsets = t[1],
                            .sources = t[2],
                            .labels = t[3],
                            .row_keys = t[4],
                            .step = t[5]},
                           Mode::kTrain),
            t[3]};
  });
  ExpectWithinBound(training, [&](uint64_t seed) -> StepInputs {
    const nn::NodeBlock b = nn::MakeBlock(plan, 2, seed);
    return {{b.features, b.offsets, at::constant_pad_nd(b.sources, {0, 60'000 - b.sources.size(0)}, 0), b.labels,
             b.row_keys, b.step}};
  });
}

}  // namespace
}  // namespace permafrost::device
