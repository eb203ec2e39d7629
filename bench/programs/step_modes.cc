// Milliseconds of training steps by the way in which they are served: replayed by an executable of their own shape, by
// one for every shape, padded, or run eager. Each round takes the next batch whose shape the frozen cache does not hold
// and trains on it once in each way, in changing order, with four models that began equal. Every executable is captured
// before the clock starts. Prints one JSON object with the times of every round; bench/steps.py sums them up.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/string_view.h"
#include "daemon/wait_policy.h"
#include "data/sampling/epoch_order.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "train/graph_set_task.h"
#include "train/step_engine.h"

namespace permafrost::train {
namespace {

using Clock = std::chrono::steady_clock;
using graphcache::OnMiss;
using graphcache::Policy;
using graphcache::Shapes;

struct Settings {
  std::string store;
  int64_t batch_size = 32, hidden = 64, layers = 4, freeze_at = 0;
  int rounds = 400, threads = 2;
};

class Silent : public RunContext {
 public:
  StopRequest stop_requested() const override { return StopRequest::kNone; }
  void OnProgress(const Progress&) override {}
  void OnEpoch(const EpochMetrics&) override {}
  absl::Status StoreEpochs() override { return absl::OkStatus(); }
  void OnCheckpoint(int64_t, absl::Duration) override {}
  void OnCheckpointFailed(const absl::Status&) override {}
  void Log(LogLevel level, std::string_view line) override {
    if (level != LogLevel::kInfo) std::cerr << line << "\n";
  }
  void OnGraphCache(const graphcache::Snapshot&, std::shared_ptr<const std::vector<graphcache::EntryInfo>>) override {}
  std::vector<graphcache::Command> TakeCacheCommands(int64_t, int64_t) override { return {}; }
};

// One way of serving a step, with a model of its own.
struct Arm {
  Arm(const char* arm_name, TrainOptions options, const std::shared_ptr<const data::GraphSet>& set)
      : name(arm_name),
        task(*GraphSetTask::Create(options, set, at::kCPU, [] { return true; })),
        batcher(task->batcher()),
        optimizer(options.optimizer, task->tensors().parameters()),
        engine(options, *task, optimizer, *backend, context) {}

  // Milliseconds of a step on `graphs`, padding included and the gathering of the batch not.
  double Step(std::span<const uint32_t> graphs) {
    const auto assembled = batcher.Assemble(graphs, data::Batcher::LeastPadded(batcher.ShapeOf(graphs)), batch);
    const Clock::time_point begin = Clock::now();
    const auto trained = assembled.ok() ? engine.Train(view, step++, seconds) : assembled;
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    if (!trained.ok()) throw std::runtime_error(std::string(trained.message()));
    return ms;
  }
  graphcache::ModeStats stats() { return engine.cache().snapshot().of(Mode::kTrain); }

  const char* name;
  const std::unique_ptr<GraphSetTask> task;
  const data::Batcher& batcher;
  Silent context;
  nn::Optimizer optimizer;
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine;
  data::PaddedBatch batch;
  GraphSetHostBatch view{batcher, at::kCPU, &batch};
  PhaseSeconds seconds;
  int64_t step = 0;
  std::vector<double> times;
};

int Run(const Settings& settings) {
  device::InstallStorageAllocator();
  device::UseThreads(settings.threads);
  const auto set = data::GraphSet::Open(settings.store);
  if (!set.ok()) throw std::runtime_error(std::string(set.status().message()));
  const auto batcher = data::Batcher::Create(*set);
  if (!batcher.ok()) throw std::runtime_error(std::string(batcher.status().message()));
  TrainOptions options;
  options.model = {.hidden_channels = settings.hidden, .num_layers = settings.layers};
  options.batch_size = settings.batch_size;
  options.epochs = 100;
  options.seed = 1;
  const auto with = [&](graphcache::PolicyOptions policy) {
    TrainOptions o = options;
    o.graph_cache = policy;
    return o;
  };
  Arm exact("exact", with({Policy::kAlways}), *set), eager("eager", with({Policy::kNever}), *set);
  Arm padded("padded", with({Policy::kFreeze, settings.freeze_at, OnMiss::kPad, Shapes::kExact}), *set);
  Arm dynamic("dynamic", with({Policy::kFreeze, 0, OnMiss::kPad, Shapes::kDynamic}), *set);
  const data::EpochOrder epochs((*batcher)->split(data::Split::kTrain),
                                {.batch_size = options.batch_size, .seed = options.seed});

  int64_t epoch = 0;
  const auto frozen = [&] { return padded.engine.cache().snapshot().frozen; };
  for (; !frozen() && epoch < options.epochs; ++epoch) {
    const auto order = epochs.Of(epoch);
    for (int64_t b = 0; b < epochs.batches_per_epoch() && !frozen(); ++b) padded.Step(epochs.Batch(order, b));
  }
  if (!frozen()) throw std::runtime_error("the set has too few shapes: its cache does not freeze");
  std::set<BatchShape> held;
  for (const auto& entry : padded.engine.cache().entries())
    if (entry.mode == Mode::kTrain) held.insert(entry.shape);
  std::vector<std::vector<uint32_t>> batches;
  for (; std::ssize(batches) < settings.rounds && epoch < options.epochs; ++epoch) {
    const auto order = epochs.Of(epoch);
    for (int64_t b = 0; b < epochs.batches_per_epoch() && std::ssize(batches) < settings.rounds; ++b) {
      const auto graphs = epochs.Batch(order, b);
      if (!held.contains(data::Batcher::LeastPadded((*batcher)->ShapeOf(graphs))))
        batches.emplace_back(graphs.begin(), graphs.end());
    }
  }
  if (batches.empty()) throw std::runtime_error("the frozen cache holds every shape of the set");
  std::array<Arm*, 4> arms{&exact, &dynamic, &padded, &eager};
  for (const auto& graphs : batches)
    for (Arm* arm : arms) arm->Step(graphs);
  const graphcache::ModeStats before = padded.stats(), exact_before = exact.stats(), dynamic_before = dynamic.stats();
  for (const auto& graphs : batches) {
    for (Arm* arm : arms) arm->times.push_back(arm->Step(graphs));
    std::ranges::rotate(arms, arms.begin() + 1);
  }
  const graphcache::ModeStats after = padded.stats(), exact_after = exact.stats(), dynamic_after = dynamic.stats();
  if (after.padded_hits - before.padded_hits != std::ssize(batches) ||
      exact_after.hits - exact_before.hits != std::ssize(batches) ||
      dynamic_after.hits - dynamic_before.hits != std::ssize(batches) || !dynamic_after.dynamic) {
    throw std::runtime_error("not every step was served in the way that its arm is for");
  }
  const auto rows = static_cast<double>(after.nodes + after.edges - before.nodes - before.edges);
  const auto added =
      static_cast<double>(after.padding_nodes + after.padding_edges - before.padding_nodes - before.padding_edges);
  const auto spare = static_cast<double>(batches.size());  // the exact form, too, has one padding node
  nlohmann::json result = {{"batch_size", settings.batch_size},
                           {"hidden", settings.hidden},
                           {"layers", settings.layers},
                           {"threads", settings.threads},
                           {"executables", held.size()},
                           {"rows_added", added / rows},
                           {"rows_added_beyond_exact", (added - spare) / rows}};
  for (const Arm* arm : arms) result["milliseconds"][arm->name] = arm->times;
  std::cout << result.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace permafrost::train

int main(int argc, char** argv) {
  permafrost::UseShortSpins(argv);  // as permafrostd
  permafrost::train::Settings settings;
  CLI::App app(
      "Times training steps replayed exactly, by one executable for every shape, padded, and run eager, on the same "
      "batches.");
  app.add_option("STORE", settings.store, "Folder of an imported dataset: STATE_DIR/datasets/NAME")->required();
  app.add_option("--rounds", settings.rounds, "Batches timed")->capture_default_str();
  app.add_option("--batch-size", settings.batch_size)->capture_default_str();
  app.add_option("--hidden", settings.hidden)->capture_default_str();
  app.add_option("--layers", settings.layers)->capture_default_str();
  app.add_option("--freeze-at", settings.freeze_at, "0: derived from the dataset")->capture_default_str();
  app.add_option("--threads", settings.threads)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return permafrost::train::Run(settings);
  } catch (const std::exception& e) {
    std::cerr << "step_modes: " << e.what() << "\n";
    return 1;
  }
}
