#include "train/measure_costs.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "graphcache/shape_plan.h"
#include "nn/optimizer.h"
#include "train/error_sums.h"
#include "train/step_compiler.h"
#include "train/step_programs.h"

namespace permafrost::train {
namespace {

using graphcache::Executable;
using graphcache::Rows;

// Runs of what is timed: at least so many, then until the time is up.
constexpr size_t kLeastRuns = 5;
constexpr absl::Duration kTimed = absl::Milliseconds(60);

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

// The planned shape whose rows are nearest to a batch's mean.
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

// A time at so many rows, of them real.
struct Timed {
  double seconds = 0, real_rows = 0, rows = 0;
};

graphcache::StepTime Line(const Timed& typical, const Timed& largest) {
  const double rows = largest.real_rows - typical.real_rows;
  // Of one size, or of times that noise has turned round, nothing says how much of it is fixed.
  const double slope = rows > 0 ? (largest.seconds - typical.seconds) / rows : 0;
  const double per_row =
      slope > 0 ? std::min(slope, typical.seconds / typical.real_rows) : typical.seconds / typical.real_rows;
  // Rounding may leave a little less than nothing.
  return {.fixed = std::max(0.0, typical.seconds - per_row * typical.real_rows), .per_row = per_row};
}

class Meter {
 public:
  Meter(const TrainOptions& options, Task& task, const device::Backend& backend,
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

  absl::StatusOr<MeasuredCosts> Measure(const graphcache::PlannedSchedule& schedule);

 private:
  struct Made {
    std::unique_ptr<Executable> executable;
    double seconds = 0;
  };
  absl::StatusOr<Made> Capture(Mode mode, const BatchShape& shape);
  absl::StatusOr<Made> CaptureDynamic(Mode mode);
  // A training step on the batch that fills `shape`, or on the other one, by `executable`; nullptr: eager.
  absl::StatusOr<Timed> Time(const BatchShape& shape, size_t probe, Executable* executable);
  // Leaves `no_dynamic_reason` where the step resists.
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
};

absl::StatusOr<Meter::Made> Meter::Capture(Mode mode, const BatchShape& shape) {
  PF_RETURN_IF_ERROR(CheckGoing());
  const Stopwatch watch;
  PF_ASSIGN_OR_RETURN(auto executable, compiler_.Capture(mode, shape));
  return Made{std::move(executable), Seconds(watch.Elapsed())};
}

absl::StatusOr<Meter::Made> Meter::CaptureDynamic(Mode mode) {
  PF_RETURN_IF_ERROR(CheckGoing());
  const Stopwatch watch;
  PF_ASSIGN_OR_RETURN(auto executable, compiler_.CaptureDynamic(mode));
  return Made{std::move(executable), Seconds(watch.Elapsed())};
}

absl::StatusOr<Timed> Meter::Time(const BatchShape& shape, size_t probe, Executable* executable) {
  PF_RETURN_IF_ERROR(CheckGoing());
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(Mode::kTrain, shape));
  HostBatch& batch = *probes[probe];
  std::vector<double> seconds;
  const Stopwatch all;
  // The first run, which finds nothing warm, is not timed.
  for (size_t run = 0; run <= kLeastRuns || all.Elapsed() < kTimed; ++run) {
    const graphcache::StepInputs& inputs = *batch.TakeInputs(static_cast<int64_t>(run));
    const Stopwatch one;
    if (executable != nullptr) {
      PF_RETURN_IF_ERROR(executable->Replay(inputs).status());
    } else {
      PF_RETURN_IF_ERROR(compiler_.RunEager(Mode::kTrain, inputs).status());
    }
    backend_.Synchronize();
    if (run > 0) seconds.push_back(Seconds(one.Elapsed()));
  }
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  return Timed{*middle, static_cast<double>(std::max<int64_t>(1, Rows(batch.real()))),
               static_cast<double>(Rows(batch.padded()))};
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
  const BatchShape typical = TypicalShape(schedule), &largest = schedule.ceiling;
  MeasuredCosts out;
  graphcache::StepCosts& costs = out.costs;
  PF_ASSIGN_OR_RETURN(const Timed eager, Time(typical, 0, nullptr));
  PF_ASSIGN_OR_RETURN(const Timed eager_largest, Time(largest, 0, nullptr));
  costs.eager = Line(eager, eager_largest);
  // The largest first: its arena serves the other, too.
  PF_ASSIGN_OR_RETURN(const Made large, Capture(Mode::kTrain, largest));
  PF_ASSIGN_OR_RETURN(const Made made, Capture(Mode::kTrain, typical));
  costs.capture = made.seconds;
  costs.entry_bytes = made.executable->bytes();
  PF_ASSIGN_OR_RETURN(const Timed replay, Time(typical, 0, made.executable.get()));
  PF_ASSIGN_OR_RETURN(const Timed full, Time(largest, 0, large.executable.get()));
  PF_ASSIGN_OR_RETURN(const Timed padded, Time(largest, 1, large.executable.get()));
  costs.replay = Line(replay, full);
  if (padded.rows > padded.real_rows) {
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

}  // namespace

absl::StatusOr<MeasuredCosts> MeasureCosts(const TrainOptions& options, Task& task, const device::Backend& backend,
                                           const graphcache::PlannedSchedule& schedule,
                                           const std::function<bool()>& keep_going) {
  return Meter(options, task, backend, keep_going).Measure(schedule);
}

}  // namespace permafrost::train
