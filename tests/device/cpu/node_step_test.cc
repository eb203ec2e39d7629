// Captured training steps of node-level models. Each replay must be bit-equal to the eager step.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <vector>

#include "device/cpu/cpu_backend.h"
#include "device/cpu/executable.h"
#include "device/cpu/tape.h"
#include "nn/loss.h"
#include "nn/models/model.h"
#include "nn/models/node_block_plan.h"
#include "nn/optimizer.h"

namespace permafrost::device {
namespace {

using at::Tensor;
using graphcache::StepInputs;
using spec::Architecture;
using Tensors = std::vector<Tensor>;

const c10::Device kCpuDevice(c10::kCPU);

struct Case {
  const char* why;
  Architecture architecture;
  nn::Plan plan;  // `real` is not set
};

// A model in training on blocks that are padded to one shape.
class Trainer {
 public:
  explicit Trainer(const Case& c)
      : case_(c),
        model_(nn::MakeNodeModel({.model = {.architecture = c.architecture,
                                            .level = spec::ModelLevel::kNode,
                                            .hidden_channels = 8,
                                            .num_layers = 2,
                                            .dropout = 0.4,
                                            .norm = spec::Norm::kNone},
                                  .in_channels = c.plan.width,
                                  .num_outputs = nn::kBlockClasses},
                                 7, kCpuDevice)),
        optimizer_({}, model_->tensors().parameters()),
        program_{[this](const StepInputs& in) { return Step(in); }, State(), nullptr} {}

  StepInputs Batch(uint64_t seed) const {
    nn::Plan plan = case_.plan;
    const auto less = static_cast<int64_t>(seed % 3);
    plan.real = {6 - less, 12 - less, 30 - 2 * less};
    const nn::NodeBlock b = nn::MakeBlock(plan, 2, seed);
    return {{b.features, b.feature_offsets, Entries(b.feature_columns), Entries(b.feature_values), b.offsets, b.sources,
             b.edge_weights, b.labels, b.row_keys, b.step}};
  }
  Tensors Step(const StepInputs& in) {
    const auto& t = in.tensors;
    nn::NodeBlock b{.row_ends = {},
                    .features = t[0],
                    .feature_offsets = t[1],
                    .feature_columns = t[2],
                    .feature_values = t[3],
                    .offsets = t[4],
                    .sources = t[5],
                    .edge_weights = t[6],
                    .labels = t[7],
                    .row_keys = t[8],
                    .step = t[9]};
    int64_t end = 0;
    for (const int64_t rows : case_.plan.padded) b.row_ends.push_back(end += rows);
    const nn::LossTerms terms =
        nn::ComputeLoss(spec::Loss::kCrossEntropy, model_->Forward(b, Mode::kTrain), b.labels, class_weights_);
    optimizer_.Step(torch::autograd::grad({terms.mean}, optimizer_.parameters()));
    return {terms.mean.detach(), terms.sum, terms.count};
  }
  std::vector<StateTensor> State() const {
    std::vector<StateTensor> out{{"class_weights", class_weights_}};
    for (const auto& named : model_->tensors().All()) out.push_back({named.name, named.value});
    for (const auto& named : optimizer_.state()) out.push_back({named.name, named.value});
    return out;
  }
  const StepProgram& program() const { return program_; }

 private:
  // Sparse features are padded to this number of entries in every batch.
  static constexpr int64_t kEntries = 900;
  static Tensor Entries(const Tensor& entries) {
    return entries.defined() ? at::constant_pad_nd(entries, {0, kEntries - entries.size(0)}, 0) : entries;
  }

  Case case_;
  std::unique_ptr<nn::NodeModel> model_;
  nn::Optimizer optimizer_;
  Tensor class_weights_ = at::tensor({0.5F, 1.0F, 2.0F});
  StepProgram program_;
};

TEST(NodeStep, ReplaysAreBitEqualToTheStep) {
  InstallStorageAllocator();
  ASSERT_TRUE(CheckRecording().ok()) << CheckRecording();
  const nn::Plan dense{.real = {}, .padded = {7, 15, 40}, .padded_edges = 120};
  const nn::Plan weighted{.real = {}, .padded = {7, 15, 40}, .padded_edges = 120, .weighted = true};
  const nn::Plan sparse{.real = {}, .padded = {7, 15, 40}, .padded_edges = 120, .width = 20, .sparse = true};
  const Case kCases[] = {
      {"sage", Architecture::kSage, dense},
      {"sage, sparse rows", Architecture::kSage, sparse},
      {"gcn", Architecture::kGcn, dense},
      {"gcn, weighted edges", Architecture::kGcn, weighted},
      {"gcn, sparse rows", Architecture::kGcn, sparse},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.why);
    Trainer eager(c), replayed(c);
    Arena arena;
    const auto executable = CaptureOnCpu(replayed.program(), replayed.Batch(100), replayed.Batch(101), arena);
    ASSERT_TRUE(executable.ok()) << executable.status();
    for (uint64_t step = 0; step < 10; ++step) {
      const StepInputs batch = eager.Batch(step);
      const Tensors expected = eager.Step(batch);
      const auto replayed_step = (*executable)->Replay(batch);
      ASSERT_TRUE(replayed_step.ok()) << replayed_step.status();
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE((*replayed_step)->tensors.at(i).equal(expected[i])) << "output " << i;
    }
    const auto want = eager.State(), got = replayed.State();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i].value.equal(want[i].value)) << want[i].name;
    EXPECT_EQ(dynamic_cast<CpuExecutable&>(**executable).unplanned_allocations(), 0);
  }
}

}  // namespace
}  // namespace permafrost::device
