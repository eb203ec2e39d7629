// Milliseconds of training steps by the way in which they are served: replayed by an executable of their own shape, by
// one for every shape, padded to what a frozen cache holds or to a ladder's rung, or run eager. Each round takes the
// next batch whose shape neither frozen cache nor ladder holds and trains on it once in each way, in changing order,
// with models that began equal. Every executable is captured before the clock starts. Prints one JSON object with the
// times of every round; bench/steps.py sums them up.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/string_view.h"
#include "daemon/process_setup.h"
#include "data/sampling/epoch_order.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "train/loop/step_engine.h"
#include "train/tasks/graph_set_task.h"

namespace permafrost::train {
namespace {

using Clock = std::chrono::steady_clock;
using spec::OnMiss;
using spec::Policy;
using spec::Shapes;

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
  absl::Status StoreEpochs(bool /*is_last*/) override { return absl::OkStatus(); }
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
  Arm(const char* arm_name, spec::TrainOptions options, const std::shared_ptr<const data::GraphSet>& set)
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
  GraphSetHostBatch view{batcher, &batch};
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
  spec::TrainOptions options;
  options.model = {.hidden_channels = settings.hidden, .num_layers = settings.layers};
  options.batch_size = settings.batch_size;
  options.epochs = 100;
  options.seed = 1;
  const auto with = [&](spec::PolicyOptions policy) {
    spec::TrainOptions o = options;
    o.graph_cache = policy;
    return o;
  };
  Arm exact("exact", with({Policy::kAlways}), *set), eager("eager", with({Policy::kNever}), *set);
  Arm padded("padded", with({Policy::kFreeze, settings.freeze_at, OnMiss::kPad, Shapes::kExact}), *set);
  Arm dynamic("dynamic", with({Policy::kFreeze, 0, OnMiss::kPad, Shapes::kDynamic}), *set);
  Arm ladder("ladder", with({Policy::kFreeze, 0, OnMiss::kPad, Shapes::kLadder}), *set);
  while (!ladder.engine.cache().ready()) {
    if (const absl::Status made = ladder.engine.CaptureNext(0); !made.ok()) {
      throw std::runtime_error(std::string(made.message()));
    }
  }
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
  int64_t executables = 0;
  for (Arm* arm : {&padded, &ladder}) {
    for (const auto& entry : arm->engine.cache().entries()) {
      if (entry.mode != Mode::kTrain) continue;
      held.insert(entry.shape);
      executables += arm == &padded ? 1 : 0;
    }
  }
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
  std::array<Arm*, 5> arms{&exact, &dynamic, &ladder, &padded, &eager};
  for (const auto& graphs : batches)
    for (Arm* arm : arms) arm->Step(graphs);
  std::map<const Arm*, graphcache::ModeStats> before;
  for (Arm* arm : arms) before[arm] = arm->stats();
  for (const auto& graphs : batches) {
    for (Arm* arm : arms) arm->times.push_back(arm->Step(graphs));
    std::ranges::rotate(arms, arms.begin() + 1);
  }
  const auto spare = static_cast<int64_t>(batches.size());  // the exact form, too, has one padding node
  nlohmann::json result = {{"batch_size", settings.batch_size},
                           {"hidden", settings.hidden},
                           {"layers", settings.layers},
                           {"threads", settings.threads},
                           {"executables", executables}};
  for (Arm* arm : arms) {
    const graphcache::ModeStats was = before[arm], is = arm->stats();
    const bool own_shape = arm == &exact || arm == &dynamic;
    const int64_t served = own_shape       ? is.hits - was.hits
                           : arm == &eager ? is.eager_steps - was.eager_steps
                                           : is.padded_hits - was.padded_hits;
    if (served != spare || (arm == &dynamic && !is.dynamic)) {
      throw std::runtime_error(std::string("not every step was served in the way that its arm is for: ") + arm->name);
    }
    result["milliseconds"][arm->name] = arm->times;
    const int64_t rows = is.nodes + is.edges - was.nodes - was.edges;
    const int64_t padding = is.padding_nodes + is.padding_edges - was.padding_nodes - was.padding_edges;
    result["rows_added_beyond_exact"][arm->name] = static_cast<double>(padding - spare) / static_cast<double>(rows);
  }
  std::cout << result.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace permafrost::train

int main(int argc, char** argv) {
  permafrost::UseShortSpins(argv);  // as permafrostd
  permafrost::train::Settings settings;
  CLI::App app(
      "Times training steps replayed exactly, by one executable for every shape, padded to a frozen cache's shapes or "
      "to a ladder's, and run eager, on the same batches.");
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
