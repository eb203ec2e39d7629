#include "train/loop/device_self_test.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "device/backend.h"
#include "device/fault.h"
#include "train/loop/evaluation.h"
#include "train/loop/step_engine.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using spec::Policy;

constexpr int64_t kHidden = 64, kLayers = 4, kBatchSize = 32;
constexpr int64_t kLeastSteps = 20, kLeastOtherSteps = 50, kClearEvery = 20;
constexpr double kMegabyte = 1e6;

// The context of a job that nobody observes or stops.
class Unwatched final : public RunContext {
 public:
  StopRequest stop_requested() const override { return StopRequest::kNone; }
  void OnProgress(const Progress& /*progress*/) override {}
  void OnGraphCache(const graphcache::Snapshot& /*snapshot*/,
                    std::shared_ptr<const std::vector<graphcache::EntryInfo>> /*entries*/) override {}
  std::vector<graphcache::Command> TakeCacheCommands(int64_t /*after*/, int64_t /*step*/) override { return {}; }
  void OnEpoch(const EpochMetrics& /*metrics*/) override {}
  absl::Status StoreEpochs(bool /*is_last*/) override { return absl::OkStatus(); }
  void OnCheckpoint(int64_t /*step*/, absl::Duration /*duration*/) override {}
  void OnCheckpointFailed(const absl::Status& /*error*/) override {}
  void Log(LogLevel /*level*/, std::string_view /*line*/) override {}
};

// A model and everything that its steps need.
struct Rig {
  Rig(const spec::TrainOptions& train_options, std::unique_ptr<Task> its_task, const device::Backend& its_backend)
      : options(train_options),
        backend(its_backend),
        task(std::move(its_task)),
        optimizer(options.optimizer, task->tensors().parameters()),
        engine(options, *task, optimizer, backend, context) {}
  static absl::StatusOr<std::unique_ptr<Rig>> Make(const spec::TrainOptions& options,
                                                   const data::OpenedDataset& dataset, const device::Backend& backend,
                                                   int threads) {
    PF_ASSIGN_OR_RETURN(auto task, Task::Create(options, dataset, backend.device(), threads, [] { return true; }));
    return std::make_unique<Rig>(options, std::move(task), backend);
  }
  absl::Status WarmUp(int64_t step) {
    while (!engine.cache().ready()) PF_RETURN_IF_ERROR(engine.CaptureNext(step));
    return absl::OkStatus();
  }
  // Returns all tensors that a step changes, for a comparison between devices. Leaves out the learning rate, because
  // its type depends on the device.
  std::vector<nn::NamedTensor> State() const {
    std::vector<nn::NamedTensor> state = task->tensors().All();
    for (const nn::NamedTensor& t : optimizer.state()) {
      if (t.name != "learning_rate") state.push_back(t);
    }
    return state;
  }

  const spec::TrainOptions options;
  const device::Backend& backend;
  Unwatched context;
  const std::unique_ptr<Task> task;
  nn::Optimizer optimizer;
  StepEngine engine;
};

struct Difference {
  double part = 0;
  std::string of;
};

double Largest(const at::Tensor& tensor) { return tensor.numel() == 0 ? 0 : tensor.abs().max().item().toDouble(); }

struct Differences {
  Difference values;  // largest difference of the loss or a running statistic
  double gradients = 0;
};

// Returns the largest absolute difference. NaN counts as very far apart.
double Apart(const at::Tensor& one, const at::Tensor& other) {
  const double apart = Largest(one - other);
  return std::isnan(apart) ? 1e30 : apart;
}

Differences Compare(const Rig& got, const Rig& want) {
  const double loss = got.engine.losses().Mean(), want_loss = want.engine.losses().Mean();
  Differences out;
  out.values = {std::abs(loss - want_loss) / std::max(1.0, std::abs(want_loss)), "loss"};
  if (std::isnan(loss) != std::isnan(want_loss)) out.values.part = 1e30;
  const std::vector<nn::NamedTensor> ours = got.State(), theirs = want.State();
  // The largest difference of gradients is divided by the largest gradient, both over all layers.
  double gradients = 0, scale = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (theirs[i].value.requires_grad() || !theirs[i].value.is_floating_point()) continue;
    const at::Tensor one = ours[i].value.detach().to(at::kCPU), other = theirs[i].value.detach();
    const double apart = Apart(one, other), size = Largest(other);
    if (theirs[i].name.starts_with("exp_avg.")) {
      gradients = std::max(gradients, apart);
      scale = std::max(scale, size);
    } else if (!theirs[i].name.starts_with("exp_avg_sq.")) {
      const double part = apart / std::max(1.0, size);
      if (part > out.values.part) out.values = {part, theirs[i].name};
    }
  }
  out.gradients = scale > 0 ? gradients / scale : gradients;
  return out;
}

struct Plan {
  std::string name;
  spec::PolicyOptions cache;
  int64_t steps = 0;
  int64_t clear_every = 0;    // 0 for never
  int64_t compare_every = 1;  // steps from one comparison to the next
};

class SelfTest {
 public:
  SelfTest(const device::Backend& backend, const device::Backend& cpu, const data::OpenedDataset& dataset, int threads)
      : backend_(backend), cpu_(cpu), dataset_(dataset), threads_(threads) {}
  absl::StatusOr<SelfTestArm> Run(const Plan& plan);

 private:
  std::optional<int64_t> Entries(const Rig& rig) const;
  // Returns the memory whose growth is measured, in bytes: the driver's memory if the driver reports it, and
  // otherwise the process's.
  double Memory() const;
  int64_t Emptied() const;
  absl::Status Step(const Plan& plan, Rig& rig, Rig& reference, HostBatch& batch, HostBatch& same, int64_t step,
                    SelfTestArm& arm);

  std::vector<double> gradients_;  // differences of gradients in the compared steps
  const device::Backend& backend_;
  const device::Backend& cpu_;
  const data::OpenedDataset& dataset_;
  const int threads_;
};

std::optional<int64_t> SelfTest::Entries(const Rig& rig) const {
  if (backend_.keeps_graphs()) return backend_.Observe().graph_entries;
  return rig.engine.cache().of(Mode::kTrain).entries + rig.engine.cache().of(Mode::kEval).entries;
}

double SelfTest::Memory() const {
  const DeviceMemory memory = backend_.Observe().memory;
  return static_cast<double>(memory.driver ? *memory.driver : memory.resident.value_or(0));
}

int64_t SelfTest::Emptied() const {
  int64_t sum = 0;
  for (const auto& [reason, count] : backend_.Observe().empty_caches) sum += count;
  return sum;
}

absl::Status SelfTest::Step(const Plan& plan, Rig& rig, Rig& reference, HostBatch& batch, HostBatch& same, int64_t step,
                            SelfTestArm& arm) {
  const bool compared = step % plan.compare_every == 0;
  if (compared) {
    nn::CopyInto(rig.State(), reference.State());
    rig.engine.losses().Reset();
    reference.engine.losses().Reset();
  }
  PhaseSeconds unused;
  const Stopwatch watch;
  PF_RETURN_IF_ERROR(rig.engine.Train(batch, step, unused));
  backend_.Synchronize();
  arm.milliseconds += 1e3 * absl::ToDoubleSeconds(watch.Elapsed()) / static_cast<double>(plan.steps);
  if (!compared) return absl::OkStatus();
  PF_RETURN_IF_ERROR(reference.engine.Train(same, step, unused));
  ++arm.compared;
  const Differences differences = Compare(rig, reference);
  gradients_.push_back(differences.gradients);
  if (arm.differs.empty() || differences.values.part > arm.difference) {
    arm.difference = differences.values.part;
    arm.differs = absl::StrCat(differences.values.of, " in step ", step + 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<SelfTestArm> SelfTest::Run(const Plan& plan) {
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kGraph);
  options.model.hidden_channels = kHidden;
  options.model.num_layers = kLayers;
  options.batch_size = kBatchSize;
  options.seed = 1;
  options.graph_cache = plan.cache;
  options.graph_cache.audit_every = 0;
  spec::TrainOptions eager = options;
  eager.graph_cache.policy = Policy::kNever;
  PF_RETURN_IF_ERROR(backend_.EmptyCaches(EmptyReason::kJob));
  const int64_t emptied = Emptied();
  PF_ASSIGN_OR_RETURN(const auto rig, Rig::Make(options, dataset_, backend_, threads_));
  PF_ASSIGN_OR_RETURN(const auto reference, Rig::Make(eager, dataset_, cpu_, threads_));
  SelfTestArm arm{.policy = plan.name, .steps = plan.steps};
  gradients_.clear();
  const int64_t batches = rig->task->batches_per_epoch();
  std::unique_ptr<BatchStream> stream, same;
  double memory = 0;
  PF_RETURN_IF_ERROR(rig->WarmUp(0));
  for (int64_t step = 0; step < plan.steps; ++step) {
    if (step % batches == 0) {
      if (step > 0) {
        PF_RETURN_IF_ERROR(
            Evaluate(rig->engine, *rig->task, data::Split::kValid, {.step = step, .keep_predictions = true}, [] {
              return true;
            }).status());
      }
      stream = rig->task->TrainBatches(step / batches, 0);
      same = reference->task->TrainBatches(step / batches, 0);
    }
    if (plan.clear_every > 0 && step > 0 && step % plan.clear_every == 0) {
      PF_RETURN_IF_ERROR(
          rig->engine.Apply({.sequence = step, .kind = graphcache::CommandKind::kClear, .update = {}}, step));
    }
    PF_RETURN_IF_ERROR(rig->WarmUp(step));
    PF_ASSIGN_OR_RETURN(HostBatch* const batch, stream->Next());
    PF_ASSIGN_OR_RETURN(HostBatch* const other, same->Next());
    PF_RETURN_IF_ERROR(Step(plan, *rig, *reference, *batch, *other, step, arm));
    if (step == 0) {
      arm.sealed = Entries(*rig);
      memory = Memory();
    }
  }
  // Evaluates at the end, as a job does.
  PF_RETURN_IF_ERROR(
      Evaluate(rig->engine, *rig->task, data::Split::kTest, {.step = plan.steps, .keep_predictions = true}, [] {
        return true;
      }).status());
  arm.end = Entries(*rig);
  std::ranges::sort(gradients_);
  arm.gradients = gradients_[gradients_.size() / 2];
  arm.gradients_most = gradients_.back();
  arm.growth_mb = (Memory() - memory) / kMegabyte;
  arm.emptied = Emptied() - emptied;
  arm.driver_bytes = backend_.Observe().memory.driver;
  return arm;
}

std::string Text(const std::optional<int64_t>& count) { return count ? absl::StrCat(*count) : "-"; }

void Judge(const device::Backend& backend, const std::vector<Plan>& plans, SelfTestReport& report) {
  const auto fail = [&](const SelfTestArm& arm, const std::string& why) {
    report.failures.push_back(absl::StrCat(arm.policy, ": ", why));
  };
  const SelfTestArm &sealed = report.arms[0], &control = report.arms[1], &cleared = report.arms[2];
  if (backend.keeps_graphs() && !sealed.end) {
    fail(sealed, absl::StrCat("entries cannot be counted, so that nothing is shown: ",
                              backend.Observe().no_graph_entries_reason));
  } else {
    if (sealed.sealed != sealed.end) {
      fail(sealed, absl::StrCat("entries(sealed) = ", Text(sealed.sealed), ", entries(end) = ", Text(sealed.end)));
    }
    if (!(control.end > control.sealed)) {
      fail(control, absl::StrCat("the control does not grow: ", Text(control.sealed), " entries, then ",
                                 Text(control.end), ": nothing is shown"));
    }
    if (!(cleared.end < control.end)) {
      fail(cleared, absl::StrCat("holds ", Text(cleared.end), " entries, the control ", Text(control.end)));
    }
  }
  for (size_t i = 0; i < report.arms.size(); ++i) {
    const SelfTestArm& arm = report.arms[i];
    if (!(arm.difference <= kSelfTestTolerance)) {
      fail(arm, absl::StrFormat("%s differs from the CPU's by %.2g, more than %.0e", arm.differs, arm.difference,
                                kSelfTestTolerance));
    }
    const bool gradients = arm.gradients <= kSelfTestTolerance && arm.gradients_most <= kSelfTestJump;
    if (!gradients) {
      fail(arm, absl::StrFormat("gradients differ from the CPU's by %.2g in half the steps and by %.2g at most, more "
                                "than %.0e and %.0e",
                                arm.gradients, arm.gradients_most, kSelfTestTolerance, kSelfTestJump));
    }
    const bool empties = backend.keeps_graphs() && spec::KeepsNothing(plans[i].cache.policy);
    if (empties && arm.emptied < arm.steps) {
      fail(arm, absl::StrCat("the device was emptied ", arm.emptied, " times in ", arm.steps, " steps"));
    }
  }
}

}  // namespace

absl::StatusOr<SelfTestReport> RunSelfTest(const SelfTestOptions& options, const data::OpenedDataset& dataset,
                                           const std::function<void(std::string_view line)>& progress) {
  if (options.steps < kLeastSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps: ", options.steps, " are too few: accepted: ", kLeastSteps, " or more"));
  }
  if (!std::holds_alternative<std::shared_ptr<const data::GraphSet>>(dataset)) {
    return absl::InvalidArgumentError(
        "dataset: is one large graph: accepted: a set of small graphs, as deploy/sample/zinc");
  }
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<device::Backend> cpu, device::OpenBackend(DeviceKind::kCpu));
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<device::Backend> backend,
                      device::OpenBackend(options.device, {.mps_driver_threshold = options.mps_driver_threshold}));
  PF_RETURN_IF_ERROR(backend->CheckCapture());
  if (const absl::Status compiled = UseKernelsOf(*backend); !compiled.ok()) {
    progress(absl::StrCat("steps use PyTorch's operators alone: ", compiled.message()));
  }
  const int threads = device::UseThreads(options.threads);
  SelfTestReport report{.device = std::string(kDeviceNames.Name(backend->kind()))};
  report.entries_are =
      backend->keeps_graphs() ? absl::StrCat("compiled graphs that ", report.device, " keeps") : "executables";
  const int64_t others = std::max(kLeastOtherSteps, options.steps / 10);
  const std::vector<Plan> plans{
      {.name = "freeze", .cache = {.policy = Policy::kFreeze}, .steps = options.steps},
      {.name = "always", .cache = {.policy = Policy::kAlways}, .steps = others},
      {.name = absl::StrCat("clear every ", kClearEvery),
       .cache = {.policy = Policy::kAlways},
       .steps = others,
       .clear_every = kClearEvery},
      {.name = "never", .cache = {.policy = Policy::kNever}, .steps = others},
      {.name = "clear-per-step", .cache = {.policy = Policy::kClearPerStep}, .steps = others}};
  const absl::Status ran = device::CatchTorch([&]() -> absl::Status {
    PF_RETURN_IF_ERROR(backend->Enter());
    return backend->Within([&]() -> absl::Status {
      SelfTest test(*backend, *cpu, dataset, threads);
      for (const Plan& plan : plans) {
        progress(absl::StrCat(plan.name, ": ", plan.steps, " steps on ", report.device));
        PF_ASSIGN_OR_RETURN(SelfTestArm arm, test.Run(plan));
        report.arms.push_back(std::move(arm));
      }
      Judge(*backend, plans, report);
      return absl::OkStatus();
    });
  });
  PF_RETURN_IF_ERROR(ran);
  return report;
}

std::string Show(const SelfTestReport& report) {
  std::string out =
      absl::StrFormat("%-16s %7s %9s %9s %9s %9s %9s %10s %9s %11s %11s\n", "policy", "steps", "ms/iter", "entries",
                      "entries", "emptied", "growth", "driver", "compared", "difference", "gradients");
  absl::StrAppendFormat(&out, "%-16s %7s %9s %9s %9s %9s %9s %10s %9s %11s %11s\n", "", "", "", "sealed", "end",
                        "times", "MB", "MB", "steps", "largest", "median");
  for (const SelfTestArm& arm : report.arms) {
    const std::string driver =
        arm.driver_bytes ? absl::StrFormat("%.1f", static_cast<double>(*arm.driver_bytes) / kMegabyte) : "-";
    absl::StrAppendFormat(&out, "%-16s %7d %9.2f %9s %9s %9d %+9.1f %10s %9d %11.1e %11.1e\n", arm.policy, arm.steps,
                          arm.milliseconds, Text(arm.sealed), Text(arm.end), arm.emptied, arm.growth_mb, driver,
                          arm.compared, arm.difference, arm.gradients);
  }
  absl::StrAppend(&out, "entries: ", report.entries_are, "\n");
  for (const std::string& failure : report.failures) absl::StrAppend(&out, "FAILED: ", failure, "\n");
  absl::StrAppend(&out, "self-test of ", report.device, ": ", report.failures.empty() ? "passed" : "failed", "\n");
  return out;
}

}  // namespace permafrost::train
