// What a job's warm-up takes, beside its first epoch: every capture that its shapes need, before the first step. One
// run a process, since what libtorch does when it is first used is a part of both. Prints one JSON object; the rounds
// are those of bench/warm_up.py.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "daemon/wait_policy.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "train/evaluator.h"
#include "train/graph_set_task.h"
#include "train/step_engine.h"

namespace permafrost::train {
namespace {

using Clock = std::chrono::steady_clock;
using graphcache::OnMiss;
using graphcache::Policy;
using graphcache::Shapes;

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

struct Settings {
  std::string store, shapes = "ladder", batching = "random";
  int64_t batch_size = 32, hidden = 64, layers = 4, rungs = 8;
  int threads = 2, warm_ups = 1;
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

template <class T>
T Need(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(std::string(value.status().message()));
  return *std::move(value);
}
void Need(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

// The most bytes of tensors at once that `body` adds.
template <class Body>
int64_t PeakOf(const Body& body) {
  device::RestartStoragePeak();
  const int64_t before = device::ReadStorageUse().bytes;
  body();
  return device::ReadStorageUse().peak_bytes - before;
}

struct Median {
  std::vector<double> values;
  double of() {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return values[values.size() / 2];
  }
};

nlohmann::json Run(const Settings& settings) {
  const auto set = Need(data::GraphSet::Open(settings.store));
  TrainOptions options;
  options.model = {.hidden_channels = settings.hidden, .num_layers = settings.layers};
  options.batch_size = settings.batch_size;
  options.epochs = 100;
  options.seed = 1;
  options.batching.kind = *data::kBatchingNames.Parse(settings.batching);
  options.graph_cache = {Policy::kFreeze, 0, OnMiss::kPad, *graphcache::kShapesNames.Parse(settings.shapes)};
  options.graph_cache.rungs = settings.rungs;
  const auto backend = Need(device::OpenBackend(DeviceKind::kCpu));
  const auto task = Need(GraphSetTask::Create(options, set, at::kCPU, [] { return true; }));
  nn::Optimizer optimizer(options.optimizer, task->tensors().parameters());
  Silent context;
  StepEngine engine(options, *task, optimizer, *backend, context);

  double warm_up = 0;
  const auto capture_all = [&] {
    const Clock::time_point begin = Clock::now();
    while (!engine.cache().ready()) Need(engine.CaptureNext(0));
    warm_up = Milliseconds(begin);
  };
  const int64_t warm_up_peak = PeakOf(capture_all);
  for (int i = 1; i < settings.warm_ups; ++i) {
    Need(engine.Apply({.sequence = i, .kind = graphcache::CommandKind::kClear}, 0));
    capture_all();
  }

  PhaseSeconds phases;
  Median steps;
  const Clock::time_point begin = Clock::now();
  int64_t step = 0;
  {
    const auto stream = task->TrainBatches(/*epoch=*/0, /*first_batch=*/0);
    while (HostBatch* const batch = Need(stream->Next())) {
      const Clock::time_point step_begin = Clock::now();
      Need(engine.Train(*batch, step++, phases));
      steps.values.push_back(Milliseconds(step_begin));
    }
  }
  const double train = Milliseconds(begin);
  Need(
      Evaluate(engine, *task, data::Split::kValid,
               {.loss = options.loss, .metrics = {nn::MetricOf(options.loss)}, .step = step, .keep_predictions = false},
               [] { return true; })
          .status());
  const double epoch = Milliseconds(begin);

  const graphcache::Snapshot now = engine.cache().snapshot();
  const graphcache::ModeStats& s = now.of(Mode::kTrain);
  const auto rows = static_cast<double>(s.nodes + s.edges), hits = static_cast<double>(s.hits + s.padded_hits);
  const double median = steps.of();
  return {{"warm_up_milliseconds", warm_up},
          {"train_milliseconds", train},
          {"epoch_milliseconds", epoch},
          {"step_milliseconds", median},
          {"warm_up_of_epoch", warm_up / epoch},
          {"warm_up_steps", warm_up / median},
          {"warm_up_peak_bytes", warm_up_peak},
          {"train_executables", s.entries},
          {"eval_executables", now.of(Mode::kEval).entries},
          {"replayed", hits / static_cast<double>(step)},
          {"rows_added", static_cast<double>(s.padding_nodes + s.padding_edges) / rows}};
}

}  // namespace
}  // namespace permafrost::train

int main(int argc, char** argv) {
  permafrost::UseShortSpins(argv);  // as permafrostd
  permafrost::train::Settings settings;
  CLI::App app("Times the warm-up of a job beside its first epoch.");
  app.add_option("STORE", settings.store, "Folder of an imported dataset: STATE_DIR/datasets/NAME")->required();
  app.add_option("--shapes", settings.shapes, "ladder or dynamic")->capture_default_str();
  app.add_option("--batching", settings.batching, "random or balanced")->capture_default_str();
  app.add_option("--rungs", settings.rungs)->capture_default_str();
  app.add_option("--batch-size", settings.batch_size)->capture_default_str();
  app.add_option("--hidden", settings.hidden)->capture_default_str();
  app.add_option("--layers", settings.layers)->capture_default_str();
  app.add_option("--threads", settings.threads)->capture_default_str();
  app.add_option("--warm-ups", settings.warm_ups, "How often all is captured; the last time is told")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    permafrost::device::InstallStorageAllocator();
    permafrost::device::UseThreads(settings.threads);
    std::cout << permafrost::train::Run(settings).dump() << "\n";
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "warm_up: " << e.what() << "\n";
    return 1;
  }
}
