// Tests a run whose step cannot be captured at some shapes: killed anywhere and resumed, it ends with the same bits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "device/backend.h"
#include "device/cpu/storage.h"
#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/loop/step_engine.h"
#include "train/tasks/graph_set_task.h"
#include "train/tasks/step_inputs.h"
#include "wrapped_task.h"

namespace permafrost::train {
namespace {

// A task that reads a value back to the host if a batch has more than `most_nodes` rows. Such a step cannot be
// captured.
class ReadsBack final : public WrappedTask {
 public:
  ReadsBack(std::unique_ptr<Task> task, int64_t most_nodes) : WrappedTask(std::move(task)), most_nodes_(most_nodes) {}

  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override {
    Output output = WrappedTask::Forward(inputs, mode);
    if (BatchOf(inputs).graph_of_node.size(0) > most_nodes_) {
      EXPECT_FALSE(std::isnan(output.prediction.detach().sum().item<double>()));
    }
    return output;
  }

 private:
  const int64_t most_nodes_;
};

// The part of a run that a checkpoint keeps.
struct Saved {
  std::vector<nn::NamedTensor> state;
  graphcache::Snapshot cache;
  std::vector<graphcache::EntryInfo> entries;
};

struct BreakRig {
  BreakRig(const spec::TrainOptions& train_options, const std::shared_ptr<const data::GraphSet>& set)
      : options(train_options),
        task(*GraphSetTask::Create(options, set, at::kCPU, [] { return true; }), kMostNodes),
        optimizer(options.optimizer, task.tensors().parameters()),
        engine(options, task, optimizer, *backend, context) {}
  std::vector<nn::NamedTensor> State() const {
    std::vector<nn::NamedTensor> all = const_cast<ReadsBack&>(task).tensors().All();
    all.insert(all.end(), optimizer.state().begin(), optimizer.state().end());
    all.insert(all.end(), engine.losses().tensors().begin(), engine.losses().tensors().end());
    return all;
  }
  // Trains from step `step` to before step `end`, and evaluates after each epoch.
  void Run(int64_t step, int64_t end) {
    const int64_t batches = task.batches_per_epoch();
    while (step < end) {
      const auto stream = task.TrainBatches(step / batches, step % batches);
      for (; step < end; ++step) {
        auto batch = stream->Next();
        ASSERT_TRUE(batch.ok()) << batch.status();
        if (*batch == nullptr) break;
        const absl::Status trained = engine.Train(**batch, step, seconds);
        ASSERT_TRUE(trained.ok()) << trained;
      }
      if (step % batches != 0) return;
      const auto valid = task.EvalBatches(data::Split::kValid);
      for (auto batch = valid->Next(); batch.ok() && *batch != nullptr; batch = valid->Next()) {
        ASSERT_TRUE(engine.Evaluate(**batch, step).ok());
      }
    }
  }
  Saved Save() { return {nn::Clone(State()), engine.cache().snapshot(), engine.cache().entries()}; }
  void Restore(const Saved& saved) {
    nn::CopyInto(saved.state, State());
    engine.cache().Restore(saved.cache, saved.entries);
  }

  // Batches have nine graphs with 6.5 nodes on average, so some batches exceed this number.
  static constexpr int64_t kMostNodes = 62;
  const spec::TrainOptions options;
  ReadsBack task;
  Recorder context;
  nn::Optimizer optimizer;
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine;
  PhaseSeconds seconds;
};

class GraphBreakTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::InstallStorageAllocator(); }
  void SetUp() override {
    device::UseThreads(2);
    set_ = ImportTinyGraphs(dir_.path(), 100);
  }
  static spec::TrainOptions Options(spec::PolicyOptions policy) {
    spec::TrainOptions options;
    options.model = {.hidden_channels = 16, .num_layers = 2, .dropout = 0.2};
    options.batch_size = 9;
    options.epochs = 4;
    options.seed = 3;
    options.graph_cache = policy;
    return options;
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> set_;
};

TEST_F(GraphBreakTest, AResumeAfterABreakEndsBitEqual) {
  constexpr int64_t kSteps = 36;
  // Freezes after few shapes. Executables captured before the break, at the ceiling, then serve other batches padded.
  const spec::TrainOptions options =
      Options({.policy = spec::Policy::kFreeze, .freeze_at = 3, .shapes = spec::Shapes::kExact});
  BreakRig whole(options, set_);
  whole.Run(0, kSteps);
  const graphcache::Snapshot end = whole.engine.cache().snapshot();
  ASSERT_TRUE(end.frozen);
  ASSERT_TRUE(end.of(Mode::kTrain).broken);
  ASSERT_GT(end.of(Mode::kTrain).padded_hits, 5) << "the case that a dropped entry would change";
  ASSERT_GT(end.of(Mode::kTrain).eager_steps, 0);
  const auto expected = whole.State();
  for (const int64_t stop : {1, 4, 9, 17, 30}) {
    BreakRig first(options, set_), second(options, set_);
    first.Run(0, stop);
    second.Restore(first.Save());
    second.Run(stop, kSteps);
    const auto state = second.State();
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(at::equal(state[i].value, expected[i].value)) << "stopped at " << stop << ": " << state[i].name;
    }
    const graphcache::Snapshot resumed = second.engine.cache().snapshot();
    EXPECT_EQ(resumed.of(Mode::kTrain).padded_hits, end.of(Mode::kTrain).padded_hits) << stop;
    EXPECT_EQ(resumed.of(Mode::kTrain).eager_steps, end.of(Mode::kTrain).eager_steps) << stop;
    EXPECT_EQ(resumed.of(Mode::kTrain).entries, end.of(Mode::kTrain).entries) << stop;
    EXPECT_EQ(resumed.of(Mode::kTrain).captures - resumed.of(Mode::kTrain).recaptures, end.of(Mode::kTrain).captures)
        << stop;
  }
}

}  // namespace
}  // namespace permafrost::train
