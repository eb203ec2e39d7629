#include "train/planning/cache_planner.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "device/mps/stand_in.h"
#include "device/staging.h"
#include "graphcache/shape_plan.h"
#include "nn/optimizer.h"
#include "spec/train_options.h"
#include "train/loop/step_engine.h"
#include "train/planning/batch_schedule.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using graphcache::Executable;
using graphcache::Rows;
using graphcache::SizedSchedule;
using spec::OnMiss;
using spec::Policy;
using spec::Shapes;

graphcache::FreezePoint FreezePointOf(const spec::TrainOptions& options, const Task& task) {
  const graphcache::ShapeSchedule& shapes = task.plan();
  // A freeze captures all planned rungs, as in the cache.
  if (const auto rungs = std::ssize(shapes.train_rungs); rungs > 0) {
    const int64_t wanted = options.graph_cache.freeze_at;
    if (wanted == 0) return {.freeze_at = 1, .source = graphcache::FreezeSource::kSchedule};
    return {.freeze_at = std::min<int64_t>(wanted, rungs), .source = graphcache::FreezeSource::kExplicit};
  }
  return graphcache::FindFreezePoint(options.graph_cache.freeze_at, GraphsPerBatch(options, task.sizes()), task.sizes(),
                                     shapes.known_train_shapes);
}

// Returns a plan with its schedules and the fields that are computed from them, but without rows and costs.
absl::StatusOr<graphcache::CachePlan> PlanOf(const spec::TrainOptions& options, Task& task,
                                             std::string no_dynamic_reason, const std::function<bool()>& keep_going) {
  graphcache::CachePlan plan{.options = options.graph_cache,
                             .freeze_point = FreezePointOf(options, task),
                             .no_dynamic_reason = std::move(no_dynamic_reason),
                             .pads = task.pads()};
  PF_ASSIGN_OR_RETURN(plan.schedules, task.Schedules(keep_going));
  return plan;
}

struct MeasuredCosts {
  graphcache::StepCosts costs;
  // The reason, found during a capture, why the step has no dynamic executable. Empty if the step has one, or if the
  // reason was known before the measurement.
  std::string no_dynamic_reason;
};

// The measurement alternates between two shapes and visits each kVisits times. A visit times every run at the shape
// at least once, and then again until its time is up. All visits together time a run for about kTimedSeconds.
constexpr int kVisits = 5;
constexpr double kTimedSeconds = 50e-3;

double ToSeconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

// Returns the planned shape whose number of rows is nearest to the mean of all batches.
BatchShape TypicalShape(const graphcache::PlannedSchedule& schedule) {
  double rows = 0, batches = 0;
  for (const graphcache::PlannedShape& s : schedule.train) {
    rows += static_cast<double>(Rows(s.shape) * s.batches);
    batches += static_cast<double>(s.batches);
  }
  const double mean = rows / std::max(1.0, batches);
  const auto distance = [mean](const graphcache::PlannedShape& s) {
    return std::abs(static_cast<double>(Rows(s.shape)) - mean);
  };
  return std::ranges::min_element(schedule.train, {}, distance)->shape;
}

// The seconds of a step on `rows` rows, of which `real_rows` are real.
struct Timed {
  double seconds = 0, real_rows = 0, rows = 0;
};

graphcache::StepTime Line(const Timed& typical, const Timed& largest) {
  const double rows = largest.real_rows - typical.real_rows;
  // If both shapes have equally many rows, or if noise makes the larger shape faster, the fixed part of the time is
  // unknown.
  const double slope = rows > 0 ? (largest.seconds - typical.seconds) / rows : 0;
  const double per_row =
      slope > 0 ? std::min(slope, typical.seconds / typical.real_rows) : typical.seconds / typical.real_rows;
  // Rounding may leave a little less than 0.
  return {.fixed = std::max(0.0, typical.seconds - per_row * typical.real_rows), .per_row = per_row};
}

// Measures steps of a task at shapes of a schedule: a few captures, and some replays of a typical batch and of the
// largest one. The task's weights change.
class Meter {
 public:
  Meter(const spec::TrainOptions& options, Task& task, const device::Backend& backend,
        const std::function<bool()>& keep_going)
      : task_(task),
        backend_(backend),
        keep_going_(keep_going),
        optimizer_(options.optimizer, task.tensors().parameters()),
        losses_(backend.device()),
        eval_losses_(backend.device()),
        eval_errors_(backend.device()),
        train_(TrainProgram(task, optimizer_, LossOf(options, backend.device()), losses_, [](int) {})),
        eval_(EvalProgram(task, LossOf(options, backend.device()), eval_losses_, eval_errors_)),
        compiler_(train_, eval_, task, backend, [](std::string_view /*line*/) {}) {}

  // Errors: FailedPrecondition with graphcache::kGraphBreakReason if a step cannot be captured; Cancelled if
  // `keep_going`, called between two measurements, returns false.
  absl::StatusOr<MeasuredCosts> Measure(const graphcache::PlannedSchedule& schedule);

 private:
  struct Made {
    std::unique_ptr<Executable> executable;
    double seconds = 0;
  };
  absl::StatusOr<Made> Capture(Mode mode, const BatchShape& shape);
  absl::StatusOr<Made> CaptureDynamic(Mode mode);
  // The runs that are timed at one shape. Their values are indices into `turns`.
  enum Run : size_t { kEager, kReplay, kPadded, kRuns };
  struct AtShape {
    AtShape(const BatchShape& at, size_t of_runs) : shape(at), runs(of_runs), turns(of_runs) {}
    Timed Of(Run run) const { return {turns.Median(run), real_rows[run], rows[run]}; }
    BatchShape shape;
    size_t runs;  // the number of runs that are timed, from kEager on
    std::unique_ptr<Executable> executable;
    Turns turns;
    std::array<double, kRuns> real_rows{}, rows{};
  };
  // Times training steps at one shape: eager and replayed on the probe that fills the shape, and replayed on the
  // other probe.
  absl::Status Visit(AtShape& at);
  absl::StatusOr<double> TimeReplay(Executable& executable, HostBatch& batch);
  absl::StatusOr<double> TimeEager(HostBatch& batch);
  // Sets `no_dynamic_reason` if the step cannot be captured for every shape.
  absl::Status MeasureDynamic(bool eval, MeasuredCosts& out);
  absl::Status CheckGoing() const {
    return keep_going_() ? absl::OkStatus() : absl::CancelledError("stopped while steps were measured");
  }

  Task& task_;
  const device::Backend& backend_;
  const std::function<bool()>& keep_going_;
  nn::Optimizer optimizer_;
  ErrorSums losses_, eval_losses_, eval_errors_;
  const device::StepProgram train_, eval_;
  StepCompiler compiler_;
  int64_t steps_ = 0;       // number of steps that were timed
  bool gave_back_ = false;  // true if the memory of replays was given back, and no replay has taken it again
};

absl::StatusOr<Meter::Made> Meter::Capture(Mode mode, const BatchShape& shape) {
  PF_RETURN_IF_ERROR(CheckGoing());
  const Stopwatch watch;
  PF_ASSIGN_OR_RETURN(auto executable, compiler_.Capture(mode, shape));
  return Made{std::move(executable), ToSeconds(watch.Elapsed())};
}

absl::StatusOr<Meter::Made> Meter::CaptureDynamic(Mode mode) {
  PF_RETURN_IF_ERROR(CheckGoing());
  const Stopwatch watch;
  PF_ASSIGN_OR_RETURN(auto executable, compiler_.CaptureDynamic(mode));
  return Made{std::move(executable), ToSeconds(watch.Elapsed())};
}

absl::StatusOr<double> Meter::TimeReplay(Executable& executable, HostBatch& batch) {
  const graphcache::StepInputs& inputs = *batch.TakeInputs(++steps_);
  if (std::exchange(gave_back_, false)) PF_RETURN_IF_ERROR(executable.Replay(inputs).status());
  const Stopwatch watch;
  PF_RETURN_IF_ERROR(executable.Replay(inputs).status());
  backend_.Synchronize();
  return ToSeconds(watch.Elapsed());
}

absl::StatusOr<double> Meter::TimeEager(HostBatch& batch) {
  // A job is admitted with memory for eager steps or for replays, not for both.
  compiler_.GiveBackMemory();
  gave_back_ = true;
  const graphcache::StepInputs& inputs = *batch.TakeInputs(++steps_);
  const Stopwatch watch;
  PF_RETURN_IF_ERROR(compiler_.RunEager(Mode::kTrain, inputs).status());
  backend_.Synchronize();
  return ToSeconds(watch.Elapsed());
}

absl::Status Meter::Visit(AtShape& at) {
  PF_RETURN_IF_ERROR(CheckGoing());
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(Mode::kTrain, at.shape));
  HostBatch &full = *probes[0], &other = *probes[1];
  for (const Run run : {kEager, kReplay, kPadded}) {
    const HostBatch& batch = run == kPadded ? other : full;
    at.real_rows[run] = static_cast<double>(std::max<int64_t>(1, Rows(batch.real())));
    at.rows[run] = static_cast<double>(Rows(batch.padded()));
  }
  const std::array<TimedRun, kRuns> runs{[&] { return TimeEager(full); },
                                         [&] { return TimeReplay(*at.executable, full); },
                                         [&] { return TimeReplay(*at.executable, other); }};
  return at.turns.Add(std::span(runs).first(at.runs), kTimedSeconds * static_cast<double>(at.runs) / kVisits);
}

absl::Status Meter::MeasureDynamic(bool eval, MeasuredCosts& out) {
  if (!compiler_.NoDynamicReason().empty()) return absl::OkStatus();
  absl::StatusOr<Made> train = CaptureDynamic(Mode::kTrain);
  if (!train.ok()) {
    const ErrorReason reason = GetReason(train.status());
    if (reason.reason != graphcache::kGraphBreakReason) return train.status();
    const auto op = reason.metadata.find("op"), why = reason.metadata.find("why");
    out.no_dynamic_reason = absl::StrCat(op == reason.metadata.end() ? "" : op->second, ": ",
                                         why == reason.metadata.end() ? "" : why->second);
    return absl::OkStatus();
  }
  out.costs.dynamic_capture = train->seconds;
  out.costs.dynamic_entry_bytes = train->executable->bytes();
  if (!eval) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const Made made, CaptureDynamic(Mode::kEval));
  out.costs.dynamic_eval_capture = made.seconds;
  out.costs.dynamic_eval_entry_bytes = made.executable->bytes();
  return absl::OkStatus();
}

absl::StatusOr<MeasuredCosts> Meter::Measure(const graphcache::PlannedSchedule& schedule) {
  AtShape typical(TypicalShape(schedule), kPadded), largest(schedule.ceiling, kRuns);
  MeasuredCosts out;
  graphcache::StepCosts& costs = out.costs;
  // Captures the largest shape first, since the typical one can then use its arena.
  for (AtShape* const at : {&largest, &typical}) {
    PF_ASSIGN_OR_RETURN(Made made, Capture(Mode::kTrain, at->shape));
    costs.capture = made.seconds;
    costs.entry_bytes = made.executable->bytes();
    at->executable = std::move(made.executable);
  }
  for (int visit = 0; visit < kVisits; ++visit) {
    PF_RETURN_IF_ERROR(Visit(visit % 2 == 0 ? typical : largest));
    PF_RETURN_IF_ERROR(Visit(visit % 2 == 0 ? largest : typical));
  }
  costs.eager = Line(typical.Of(kEager), largest.Of(kEager));
  costs.replay = Line(typical.Of(kReplay), largest.Of(kReplay));
  if (const Timed padded = largest.Of(kPadded); padded.rows > padded.real_rows) {
    costs.padding_row =
        std::max(0.0, (padded.seconds - costs.replay.Of(padded.real_rows)) / (padded.rows - padded.real_rows));
  }
  const bool eval = !schedule.eval_rungs.empty();
  if (eval) {
    PF_ASSIGN_OR_RETURN(const Made one, Capture(Mode::kEval, schedule.eval_rungs[schedule.eval_rungs.size() / 2]));
    costs.eval_capture = one.seconds;
    costs.eval_entry_bytes = one.executable->bytes();
  }
  PF_RETURN_IF_ERROR(MeasureDynamic(eval, out));
  costs.shared_bytes = compiler_.shared_bytes();
  return out;
}

// Takes the census of one task. The task's weights change.
class CensusTaker {
 public:
  CensusTaker(const spec::TrainOptions& options, Task& task)
      : options_(options),
        task_(task),
        optimizer_(options.optimizer, task.tensors().parameters()),
        losses_(at::kMPS),
        eval_losses_(at::kMPS),
        eval_errors_(at::kMPS),
        train_(TrainProgram(task, optimizer_, LossOf(options, at::kMPS), losses_, [](int) {})),
        eval_(EvalProgram(task, LossOf(options, at::kMPS), eval_losses_, eval_errors_)) {}

  absl::StatusOr<graphcache::LoweringCensus> Take(const graphcache::CachePlan& plan, graphcache::TorchRelease release,
                                                  const std::function<bool()>& keep_going);

 private:
  // Returns true if the sizes of a step's tensors are functions of its batch's shape. For sampled blocks, returns
  // false, because the sizes are functions of the sizes of the step's inputs.
  bool by_shape() const { return !schedule_->estimated; }
  std::vector<int64_t> SizesOf(HostBatch& batch) const;
  absl::StatusOr<std::vector<int64_t>> SizesAt(Mode mode, const BatchShape& shape) const;
  absl::StatusOr<graphcache::SymbolicStep> Record(Mode mode, graphcache::TorchRelease release);
  // Returns every shape of the mode before any policy pads it.
  std::vector<graphcache::PlannedShape> ShapesOf(Mode mode) const;
  // Returns the shapes that reach the device under a row's policy.
  std::vector<graphcache::PlannedShape> Reaching(Mode mode, const graphcache::PlanRow& row, int64_t freeze_at) const;
  absl::StatusOr<SizedSchedule> Sized(Mode mode, const std::vector<graphcache::PlannedShape>& shapes) const;

  const spec::TrainOptions& options_;
  Task& task_;
  const graphcache::PlannedSchedule* schedule_ = nullptr;
  nn::Optimizer optimizer_;
  ErrorSums losses_, eval_losses_, eval_errors_;
  const device::StepProgram train_, eval_;
};

std::vector<int64_t> CensusTaker::SizesOf(HostBatch& batch) const {
  const BatchShape shape = batch.padded();
  std::vector<int64_t> sizes{shape.nodes, shape.edges, shape.graphs};
  if (by_shape()) return sizes;
  for (const at::Tensor& input : batch.TakeInputs(0)->tensors) {
    if (input.defined()) sizes.insert(sizes.end(), input.sizes().begin(), input.sizes().end());
  }
  return sizes;
}

absl::StatusOr<std::vector<int64_t>> CensusTaker::SizesAt(Mode mode, const BatchShape& shape) const {
  if (by_shape()) return std::vector{shape.nodes, shape.edges, shape.graphs};
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, shape));
  return SizesOf(*probes[0]);
}

absl::StatusOr<graphcache::SymbolicStep> CensusTaker::Record(Mode mode, graphcache::TorchRelease release) {
  std::vector<std::vector<graphcache::OpCall>> streams;
  std::vector<std::vector<int64_t>> sizes;
  const auto record = [&](HostBatch& batch) {
    const graphcache::StepInputs inputs = device::CopyToDevice(*batch.TakeInputs(std::ssize(streams)), at::kMPS);
    streams.push_back(device::RecordMpsCalls([&] { (mode == Mode::kTrain ? train_ : eval_).run(inputs); }));
    sizes.push_back(SizesOf(batch));
  };
  if (task_.NoDynamicReason().empty()) {
    for (size_t probe = 0; probe < device::kDynamicProbes; ++probe) {
      PF_ASSIGN_OR_RETURN(HostBatch * batch, task_.DynamicProbe(mode, probe));
      record(*batch);
    }
  } else {
    PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, schedule_->ceiling));
    record(*probes[0]);
  }
  return graphcache::FindCalls(streams, sizes, release);
}

std::vector<graphcache::PlannedShape> CensusTaker::ShapesOf(Mode mode) const {
  if (mode == Mode::kTrain) return schedule_->train;
  std::vector<graphcache::PlannedShape> shapes;
  for (const graphcache::ShapeCount& s : task_.plan().eval_schedule) {
    shapes.push_back({.shape = s.shape, .batches = s.count});
  }
  if (!shapes.empty()) return shapes;
  for (const BatchShape& shape : schedule_->eval_rungs) shapes.push_back({.shape = shape});
  // A whole graph is evaluated in one step.
  const auto batches = [this](data::Split split) -> int64_t { return task_.size(split) > 0 ? 1 : 0; };
  if (!shapes.empty()) {
    shapes.back().batches = options_.epochs * batches(data::Split::kValid) + 2 * batches(data::Split::kTest);
  }
  return shapes;
}

std::vector<graphcache::PlannedShape> CensusTaker::Reaching(Mode mode, const graphcache::PlanRow& row,
                                                            int64_t freeze_at) const {
  std::vector<graphcache::PlannedShape> all = ShapesOf(mode), some;
  const auto take = [&](const std::vector<BatchShape>& shapes) {
    for (const BatchShape& shape : shapes) some.push_back({.shape = shape});
    return some;
  };
  if (row.shapes == Shapes::kLadder) {
    const int64_t rungs = mode == Mode::kTrain ? row.train_executables : row.eval_executables;
    return rungs == 0 ? all : take(LadderOf(task_.plan(), mode, rungs));
  }
  const bool pads = row.options.on_miss == OnMiss::kPad || row.options.on_miss == OnMiss::kReject;
  // Steps that run eager, or whose captures are dropped, reach the device too.
  if (row.options.policy != Policy::kFreeze || !pads || freeze_at == 0) return all;
  if (mode == Mode::kEval) return take(schedule_->eval_rungs);
  if (!schedule_->rungs.empty()) return take(schedule_->rungs);
  if (std::cmp_less(freeze_at, all.size())) all.resize(static_cast<size_t>(freeze_at));
  const auto is_ceiling = [this](const graphcache::PlannedShape& s) { return s.shape == schedule_->ceiling; };
  const bool seals_ceiling = row.options.on_miss == OnMiss::kPad;
  if (seals_ceiling && std::ranges::none_of(all, is_ceiling)) all.push_back({.shape = schedule_->ceiling});
  return all;
}

absl::StatusOr<SizedSchedule> CensusTaker::Sized(Mode mode, const std::vector<graphcache::PlannedShape>& shapes) const {
  SizedSchedule out;
  for (const graphcache::PlannedShape& shape : shapes) {
    PF_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, SizesAt(mode, shape.shape));
    out.shapes.push_back({std::move(sizes), shape.batches});
  }
  out.first_epoch = std::ssize(shapes);
  if (mode == Mode::kTrain && shapes.size() == schedule_->train.size()) out.first_epoch = schedule_->first_epoch_shapes;
  return out;
}

absl::StatusOr<graphcache::LoweringCensus> CensusTaker::Take(const graphcache::CachePlan& plan,
                                                             graphcache::TorchRelease release,
                                                             const std::function<bool()>& keep_going) {
  schedule_ = &plan.schedules.front();
  graphcache::LoweringCensus out;
  std::array<graphcache::SymbolicStep, 2> steps;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const std::vector<graphcache::PlannedShape> shapes = ShapesOf(mode);
    if (shapes.empty()) continue;
    if (!keep_going()) return absl::CancelledError("stopped while a census was taken");
    const auto m = static_cast<size_t>(mode);
    PF_ASSIGN_OR_RETURN(steps[m], Record(mode, release));
    PF_ASSIGN_OR_RETURN(const SizedSchedule sized, Sized(mode, shapes));
    const auto largest = std::ranges::max_element(
        shapes, {}, [](const graphcache::PlannedShape& s) { return graphcache::Rows(s.shape); });
    out.modes[m] = graphcache::CountMode(steps[m], sized, sized.shapes[static_cast<size_t>(largest - shapes.begin())]);
    for (const std::string& op : steps[m].unknown) {
      if (std::ranges::find(out.unknown, op) == out.unknown.end()) out.unknown.push_back(op);
    }
  }
  for (const graphcache::PlanRow& row : plan.rows) {
    if (row.schedule != 0) continue;
    if (!keep_going()) return absl::CancelledError("stopped while a census was taken");
    std::array<SizedSchedule, 2> schedules;
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      PF_ASSIGN_OR_RETURN(schedules[static_cast<size_t>(mode)],
                          Sized(mode, Reaching(mode, row, plan.freeze_point.freeze_at)));
    }
    graphcache::CensusRow counted = CountPolicy(steps, schedules, KeepsNothing(row.options.policy));
    counted.options = row.options;
    counted.shapes = row.shapes;
    out.rows.push_back(counted);
  }
  return out;
}

}  // namespace

absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request, const device::Backend& backend, int threads,
                                                const PlanContext& context, const std::function<bool()>& keep_going) {
  const spec::TrainOptions& options = request.options;
  PF_ASSIGN_OR_RETURN(
      const std::unique_ptr<Task> task,
      Task::Create(options, request.dataset, request.measure ? backend.device() : c10::Device(c10::kCPU), threads,
                   keep_going, context));
  if (request.measure) device::UseThreads(threads, task->torch_threads());
  PF_ASSIGN_OR_RETURN(graphcache::CachePlan plan, PlanOf(options, *task, NoDynamicReason(backend, *task), keep_going));
  if (request.measure) {
    absl::StatusOr<MeasuredCosts> measured = Meter(options, *task, backend, keep_going).Measure(plan.schedules.front());
    if (measured.ok()) {
      plan.costs = measured->costs;
      if (!measured->no_dynamic_reason.empty()) plan.no_dynamic_reason = std::move(measured->no_dynamic_reason);
    } else if (GetReason(measured.status()).reason == graphcache::kGraphBreakReason) {
      plan.no_costs_reason = absl::StrCat("the step cannot be captured: ", measured.status().message());
    } else {
      return measured.status();
    }
  }
  if (!keep_going()) return absl::CancelledError("stopped before the rows of a plan were made");
  graphcache::FillRows(plan);
  return plan;
}

absl::StatusOr<graphcache::Census> TakeCensus(const CensusRequest& request, int threads, const PlanContext& context,
                                              const std::function<bool()>& keep_going) {
  if (spec::IsProgram(request.options)) {
    return absl::FailedPreconditionError("a census is taken of the server's own models; a program has none");
  }
  const device::MpsStandIn within;
  // Autograd asks for the stream of the only accelerator that it knows.
  if (const auto accelerator = at::accelerator::getAccelerator(); accelerator != c10::kMPS) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no census can be taken here: its steps run on mps or a stand-in for it, and this libtorch's device is ",
        accelerator ? c10::DeviceTypeName(*accelerator, /*lower_case=*/true) : "none",
        "; ask a server with the CPU's libtorch, or one on a Mac"));
  }
  graphcache::Census census{.release = request.release};
  spec::TrainOptions options = request.options;
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<Task> task,
                      Task::Create(options, request.dataset, at::kMPS, threads, keep_going, context));
  PF_ASSIGN_OR_RETURN(graphcache::CachePlan plan, PlanOf(options, *task, OneShapeReason(DeviceKind::kMps), keep_going));
  graphcache::FillRows(plan);
  const bool plain = options.model.lowering == spec::Lowering::kPlain;
  for (const spec::Lowering lowering : {plain ? spec::Lowering::kPlain : spec::Lowering::kShapeFree,
                                        plain ? spec::Lowering::kShapeFree : spec::Lowering::kPlain}) {
    options.model.lowering = lowering;
    CensusTaker taker(options, *task);
    PF_ASSIGN_OR_RETURN(graphcache::LoweringCensus one, taker.Take(plan, request.release, keep_going));
    one.lowering = spec::kLoweringNames.Name(lowering);
    census.lowerings.push_back(std::move(one));
  }
  census.freeze_at = plan.freeze_point.freeze_at;
  census.schedule = std::move(plan.schedules.front());
  return census;
}

absl::Status Turns::Add(std::span<const TimedRun> runs, double seconds) {
  double took = 0;
  do {
    const bool reverse = rounds_++ % 2 == 1;
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t run = reverse ? runs.size() - 1 - i : i;
      PF_ASSIGN_OR_RETURN(const double one, runs[run]());
      seconds_[run].push_back(one);
      took += one;
    }
  } while (took < seconds);
  return absl::OkStatus();
}

double Turns::Median(size_t run) const {
  std::vector<double> sorted = seconds_[run];
  const auto middle = sorted.begin() + (std::ssize(sorted) - 1) / 2;
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

}  // namespace permafrost::train
