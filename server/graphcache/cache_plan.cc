#include "graphcache/cache_plan.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/string_view.h"

namespace permafrost::graphcache {
namespace {

constexpr int64_t kLadderRungs[] = {1, 4, 8, 16};
// A difference in time that no run would show.
constexpr double kAsFast = 1.01;
// Rows added that are worth fewer executables.
constexpr double kFewRows = 0.02;

// For how many shapes an executable is under `options`: never kAuto.
Shapes FormOf(const PolicyOptions& options, bool has_dynamic) {
  if (WantsDynamic(options) && has_dynamic) return Shapes::kDynamic;
  return WantsLadder(options) ? Shapes::kLadder : Shapes::kExact;
}

// Adds up one policy's steps, shape by shape.
class Tally {
 public:
  explicit Tally(PlanRow& row) : row_(row) {}

  // Batches that are captured, kept or not, and so run at their own shape.
  void Capture(const PlannedShape& shape, int64_t batches) {
    row_.captures += batches;
    Count(shape, batches, shape.shape);
    captured_ += batches;
  }
  void Replay(const PlannedShape& shape, int64_t batches, const BatchShape& at) {
    row_.replayed += batches;
    if (at != shape.shape) row_.padded += batches;
    Count(shape, batches, at);
  }
  void ReplayDynamic(const PlannedShape& shape) {
    row_.replayed += shape.batches;
    row_.real_rows += shape.real_rows;
    row_.padding_rows += shape.dynamic_rows - shape.real_rows;
  }
  void Eager(const PlannedShape& shape, int64_t batches) {
    row_.eager += batches;
    eager_rows_ += Share(shape, batches);
    Count(shape, batches, shape.shape);
  }

  void Price(const StepCosts& costs) {
    const auto eager = static_cast<double>(row_.eager);
    const auto others = static_cast<double>(row_.replayed + captured_);
    const double eager_seconds = costs.eager.fixed * eager + costs.eager.per_row * eager_rows_;
    const double replay_seconds = costs.replay.fixed * others +
                                  costs.replay.per_row * (static_cast<double>(row_.real_rows) - eager_rows_) +
                                  costs.padding_row * static_cast<double>(row_.padding_rows);
    const bool dynamic = row_.shapes == Shapes::kDynamic;
    const double capture_seconds =
        (dynamic ? costs.dynamic_capture : costs.capture) * static_cast<double>(row_.captures) +
        (dynamic ? costs.dynamic_eval_capture : costs.eval_capture) * static_cast<double>(row_.eval_executables);
    row_.step_seconds = (eager_seconds + replay_seconds) / std::max(1.0, eager + others);
    row_.train_seconds = eager_seconds + replay_seconds + capture_seconds;
    const bool keeps = row_.train_executables + row_.eval_executables > 0 || captured_ > 0;
    row_.bytes = (keeps ? costs.shared_bytes : 0) +
                 row_.train_executables * (dynamic ? costs.dynamic_entry_bytes : costs.entry_bytes) +
                 row_.eval_executables * (dynamic ? costs.dynamic_eval_entry_bytes : costs.eval_entry_bytes);
  }

 private:
  static double Share(const PlannedShape& shape, int64_t batches) {
    return static_cast<double>(shape.real_rows) * static_cast<double>(batches) / static_cast<double>(shape.batches);
  }
  void Count(const PlannedShape& shape, int64_t batches, const BatchShape& at) {
    const auto real = static_cast<int64_t>(Share(shape, batches));
    row_.real_rows += real;
    row_.padding_rows += Rows(at) * batches - real;
  }

  PlanRow& row_;
  int64_t captured_ = 0;  // steps that were captured first
  double eager_rows_ = 0;
};

// #10689's: shapes are captured in order until `freeze_at` are held.
void TallyExactFreeze(const PolicyOptions& options, const PlannedSchedule& schedule, int64_t freeze_at, PlanRow& row,
                      Tally& tally) {
  const auto all = std::span(schedule.train);
  const size_t held = freeze_at > 0 ? std::min(all.size(), static_cast<size_t>(freeze_at)) : all.size();
  std::vector<BatchShape> shapes;
  for (const PlannedShape& shape : all.first(held)) {
    shapes.push_back(shape.shape);
    tally.Capture(shape, 1);
    if (shape.batches > 1) tally.Replay(shape, shape.batches - 1, shape.shape);
  }
  row.train_executables = static_cast<int64_t>(held);
  if (freeze_at > 0 && std::ranges::find(shapes, schedule.ceiling) == shapes.end()) {
    shapes.push_back(schedule.ceiling);
    ++row.train_executables;
    ++row.captures;
  }
  for (const PlannedShape& shape : all.subspan(held)) {
    if (shape.shape == schedule.ceiling) {  // held since the freeze
      tally.Replay(shape, shape.batches, shape.shape);
      continue;
    }
    switch (options.on_miss) {
      case OnMiss::kPad:
        tally.Replay(shape, shape.batches, *FindCheapest(shapes, shape.shape));
        break;
      case OnMiss::kEager:
        tally.Eager(shape, shape.batches);
        break;
      case OnMiss::kTransient:
        tally.Capture(shape, shape.batches);
        break;
      case OnMiss::kReject:
        row.rejected += shape.batches;
        break;
    }
  }
}

void TallyLadder(const PolicyOptions& options, const PlannedSchedule& schedule, PlanRow& row, Tally& tally) {
  const std::vector<BatchShape> rungs = Ladder(CountsOf(schedule), RungsOf(options));
  row.train_executables = row.captures = std::ssize(rungs);
  for (const PlannedShape& shape : schedule.train) {
    tally.Replay(shape, shape.batches, *FindCheapest(rungs, shape.shape));
  }
}

std::string Describe(const PlanRow& row, const CachePlan& plan) {
  std::string text(kPolicyNames.Name(row.options.policy));
  if (row.shapes == Shapes::kDynamic) absl::StrAppend(&text, " with one executable for every shape");
  if (row.shapes == Shapes::kLadder) absl::StrAppend(&text, " with a ladder of ", row.train_executables);
  if (plan.schedules.size() > 1) {
    absl::StrAppend(&text, ", ", plan.schedules[static_cast<size_t>(row.schedule)].batching, " batches");
  }
  return text;
}

double RowsAdded(const PlanRow& row) {
  return row.real_rows == 0 ? 0 : static_cast<double>(row.padding_rows) / static_cast<double>(row.real_rows);
}

// Whether every step is a replay at the end, whatever comes: the cache is sealed.
bool IsSealed(const PlanRow& row) {
  return row.options.policy == Policy::kFreeze && row.eager == 0 && row.rejected == 0 &&
         row.captures <= row.train_executables;
}

bool IsBetter(const PlanRow& a, const PlanRow& b) {
  if (a.train_seconds && b.train_seconds) {
    if (*a.train_seconds * kAsFast < *b.train_seconds) return true;
    if (*b.train_seconds * kAsFast < *a.train_seconds) return false;
  } else if (const double rows = RowsAdded(a), others = RowsAdded(b);
             rows != others && std::max(rows, others) > kFewRows) {
    return rows < others;
  }
  // Batches as they come rather than composed ones, then the fewest executables.
  if (a.schedule != b.schedule) return a.schedule < b.schedule;
  return a.train_executables + a.eval_executables < b.train_executables + b.eval_executables;
}

}  // namespace

std::vector<ShapeCount> CountsOf(const PlannedSchedule& schedule) {
  std::vector<ShapeCount> counts;
  counts.reserve(schedule.train.size());
  for (const PlannedShape& s : schedule.train) counts.push_back({s.shape, s.batches});
  // Of a schedule that was not walked to its end: what no batch can pass.
  if (schedule.cut) counts.push_back({schedule.ceiling, 0});
  return counts;
}

int64_t Batches(const PlannedSchedule& schedule) {
  int64_t batches = 0;
  for (const PlannedShape& shape : schedule.train) batches += shape.batches;
  return batches;
}

PlanRow PlanPolicy(const PolicyOptions& options, const PlannedSchedule& schedule, int64_t freeze_at,
                   const std::string& no_dynamic_reason, const std::optional<StepCosts>& costs) {
  const auto rungs = std::ssize(schedule.eval_rungs);
  PlanRow row{.options = options, .shapes = FormOf(options, no_dynamic_reason.empty())};
  Tally tally(row);
  if (row.shapes == Shapes::kDynamic) {
    row.train_executables = row.captures = 1;
    row.eval_executables = rungs > 0 ? 1 : 0;
    for (const PlannedShape& shape : schedule.train) tally.ReplayDynamic(shape);
  } else if (row.shapes == Shapes::kLadder) {
    row.eval_executables = std::min({schedule.eval_shapes, RungsOf(options), kMaxEvalRungs});
    TallyLadder(options, schedule, row, tally);
  } else if (options.policy == Policy::kFreeze) {
    row.eval_executables = rungs;
    TallyExactFreeze(options, schedule, freeze_at, row, tally);
  } else {
    for (const PlannedShape& shape : schedule.train) {
      if (options.policy == Policy::kNever) {
        tally.Eager(shape, shape.batches);
      } else if (options.policy == Policy::kClearPerStep) {
        tally.Capture(shape, shape.batches);
      } else {
        tally.Capture(shape, 1);
        if (shape.batches > 1) tally.Replay(shape, shape.batches - 1, shape.shape);
        ++row.train_executables;
      }
    }
    if (options.policy == Policy::kAlways) row.eval_executables = schedule.eval_shapes;
  }
  if (costs) tally.Price(*costs);
  return row;
}

void FillRows(CachePlan& plan) {
  const auto add = [&](const PolicyOptions& options, size_t schedule) {
    PlanRow row =
        PlanPolicy(options, plan.schedules[schedule], plan.freeze_point.freeze_at, plan.no_dynamic_reason, plan.costs);
    row.schedule = static_cast<int64_t>(schedule);
    plan.rows.push_back(row);
  };
  const auto with = [&](Policy policy, Shapes shapes, OnMiss on_miss, int64_t rungs) {
    PolicyOptions options = plan.options;
    options.policy = policy;
    options.shapes = shapes;
    options.on_miss = on_miss;
    options.rungs = rungs;
    return options;
  };
  const int64_t rungs = plan.options.rungs;
  add(plan.options, 0);
  for (size_t s = 0; s < plan.schedules.size(); ++s) {
    if (s == 0) {
      add(with(Policy::kAlways, Shapes::kExact, OnMiss::kPad, rungs), s);
      add(with(Policy::kNever, Shapes::kExact, OnMiss::kPad, rungs), s);
      add(with(Policy::kClearPerStep, Shapes::kExact, OnMiss::kPad, rungs), s);
      add(with(Policy::kFreeze, Shapes::kExact, OnMiss::kTransient, rungs), s);
      add(with(Policy::kFreeze, Shapes::kExact, OnMiss::kPad, rungs), s);
    }
    // Sampled blocks and whole graphs have their few shapes already.
    const bool few = plan.schedules[s].estimated || std::ssize(plan.schedules[s].train) == 1;
    for (const int64_t k : kLadderRungs) {
      if (!few) add(with(Policy::kFreeze, Shapes::kLadder, OnMiss::kPad, k), s);
    }
    if (plan.no_dynamic_reason.empty()) add(with(Policy::kFreeze, Shapes::kDynamic, OnMiss::kPad, rungs), s);
  }
  size_t best = plan.rows.size();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (IsSealed(plan.rows[i]) && (best == plan.rows.size() || IsBetter(plan.rows[i], plan.rows[best]))) best = i;
  }
  plan.recommended = static_cast<int64_t>(best == plan.rows.size() ? 0 : best);
  const PlanRow& row = plan.rows[static_cast<size_t>(plan.recommended)];
  const int64_t executables = row.train_executables + row.eval_executables;
  plan.reason = absl::StrCat(Describe(row, plan), ": every step a replay by ", executables,
                             executables == 1 ? " executable" : " executables", " that never become more, ",
                             absl::StrFormat("%.1f %% rows added", 1e2 * RowsAdded(row)));
  if (row.train_seconds) {
    double fastest = *row.train_seconds;
    for (const PlanRow& other : plan.rows) fastest = std::min(fastest, *other.train_seconds);
    const double times = *row.train_seconds / fastest;
    absl::StrAppend(&plan.reason, times < kAsFast ? ", as fast as any"
                                                  : absl::StrFormat(", %.3g times as long as the fastest", times));
  }
}

}  // namespace permafrost::graphcache
