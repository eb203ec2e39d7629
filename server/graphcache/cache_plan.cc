#include "graphcache/cache_plan.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graphcache/shape_plan.h"

namespace permafrost::graphcache {
namespace {

constexpr int64_t kLadderRungs[] = {1, 4, 8, 16};

// Returns the form of executables under `options`; never kAuto.
spec::Shapes FormOf(const spec::PolicyOptions& options, bool has_dynamic) {
  if (WantsDynamic(options) && has_dynamic) return spec::Shapes::kDynamic;
  return WantsLadder(options) ? spec::Shapes::kLadder : spec::Shapes::kExact;
}

// Adds up one policy's steps, shape by shape.
class Tally {
 public:
  explicit Tally(PlanRow& row) : row_(row) {}

  // Counts `batches` batches of the shape. For each of them, the step is captured and replayed at the batch's own
  // shape, whether or not the executable is kept.
  void Capture(const PlannedShape& shape, int64_t batches) { CaptureAt(shape, batches, shape.shape); }
  void CaptureAt(const PlannedShape& shape, int64_t batches, const BatchShape& at) {
    row_.captures += batches;
    Count(shape, batches, at);
    captured_ += batches;
  }
  void Replay(const PlannedShape& shape, int64_t batches, const BatchShape& at) {
    row_.replayed += batches;
    if (at != shape.shape) row_.padded += batches;
    Count(shape, batches, at);
  }
  // Counts all batches of the shape under a dynamic executable. For the first `captured` of them, the step is
  // captured.
  void RunDynamic(const PlannedShape& shape, int64_t captured) {
    row_.captures += captured;
    captured_ += captured;
    row_.replayed += shape.batches - captured;
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
    const bool dynamic = row_.shapes == spec::Shapes::kDynamic;
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
  int64_t captured_ = 0;  // steps that were captured before they ran
  double eager_rows_ = 0;
};

// Returns the number of shapes that only the test split has. In a long evaluation, eval_shapes counts merged shapes
// and valid_shapes does not. Their difference may then be negative; the result is then 0.
int64_t TestShapes(const PlannedSchedule& schedule) {
  return std::max<int64_t>(schedule.eval_shapes - schedule.valid_shapes, 0);
}

// The number of executables of exact shapes at the end of a run that never freezes. Until the limit is reached,
// shapes are captured in this order: the first epoch's, the validation split's, the later epochs', and the test
// split's.
struct HeldShapes {
  int64_t train = 0, eval = 0;
};
HeldShapes HeldAtEnd(const PlannedSchedule& schedule, int64_t limit) {
  HeldShapes held;
  const auto take = [&](int64_t count, int64_t& of) { of += std::min(count, limit - held.train - held.eval); };
  const int64_t all = std::ssize(schedule.train), first = std::min(schedule.first_epoch_shapes, all);
  take(first, held.train);
  take(schedule.valid_shapes, held.eval);
  take(all - first, held.train);
  take(TestShapes(schedule), held.eval);
  return held;
}

// Counts steps with exact shapes under a cache that does not freeze. Shapes are captured in order until the limit is
// reached. Batches of later shapes are padded into held executables or, if none fits, run eager.
void TallyExact(const spec::PolicyOptions& options, const PlannedSchedule& schedule, bool pads, PlanRow& row,
                Tally& tally) {
  const auto all = std::span(schedule.train);
  HeldShapes held = HeldAtEnd(schedule, LimitOf(options));
  // Under kFreeze, evaluation batches are padded to rungs even if the cache never freezes.
  if (options.policy == spec::Policy::kFreeze) held.eval = std::min(held.eval, std::ssize(schedule.eval_rungs));
  std::vector<BatchShape> shapes;
  for (const PlannedShape& shape : all.first(static_cast<size_t>(held.train))) {
    shapes.push_back(shape.shape);
    tally.Capture(shape, 1);
    if (shape.batches > 1) tally.Replay(shape, shape.batches - 1, shape.shape);
  }
  for (const PlannedShape& shape : all.subspan(static_cast<size_t>(held.train))) {
    const BatchShape* const larger = pads ? FindCheapest(shapes, shape.shape) : nullptr;
    if (larger != nullptr) {
      tally.Replay(shape, shape.batches, *larger);
    } else {
      tally.Eager(shape, shape.batches);
    }
  }
  row.train_executables = held.train;
  row.eval_executables = held.eval;
}

// Counts steps with exact shapes under the freezing cache of #10689. Shapes are captured in order until `freeze_at`
// of them are held, or until the limit leaves room only for the shapes that the freeze adds.
void TallyExactFreeze(const spec::PolicyOptions& options, const PlannedSchedule& schedule, int64_t freeze_at,
                      const PlannedSet& planned, PlanRow& row, Tally& tally) {
  const std::vector<BatchShape>& sealing = planned[static_cast<size_t>(Mode::kTrain)].shapes;
  row.eval_executables = std::ssize(planned[static_cast<size_t>(Mode::kEval)].shapes);
  int64_t room = LimitOf(options) - row.eval_executables;
  // If a freeze does not capture rungs for evaluation, evaluation holds the shapes that occur before the freeze.
  const bool eval_as_it_comes = row.eval_executables == 0;
  const auto all = std::span(schedule.train);
  std::vector<BatchShape> shapes;
  const auto holds = [&shapes](const BatchShape& shape) { return std::ranges::find(shapes, shape) != shapes.end(); };
  const auto evaluate = [&](int64_t eval_shapes) {
    if (!eval_as_it_comes) return;
    const int64_t fit = std::clamp<int64_t>(room - std::ssize(shapes), 0, eval_shapes);
    row.eval_executables += fit;
    room -= fit;
  };
  const auto first_epoch = static_cast<size_t>(schedule.first_epoch_shapes);
  int64_t missing = std::ssize(sealing);
  size_t held = 0;
  bool first_is_eager = false;
  for (; held < all.size(); ++held) {
    if (held == first_epoch && held > 0 && std::ssize(shapes) < freeze_at) evaluate(schedule.valid_shapes);
    const PlannedShape& shape = all[held];
    const bool seals = std::ranges::find(sealing, shape.shape) != sealing.end();
    const bool is_full = std::ssize(shapes) + missing >= room;
    // The freeze comes after the first step. If all room is reserved for the captures of the freeze, the first step
    // runs eager.
    first_is_eager = held == 0 && is_full && !seals;
    if (first_is_eager || (held > 0 && (is_full || std::ssize(shapes) >= freeze_at))) break;
    if (seals) --missing;
    shapes.push_back(shape.shape);
    tally.Capture(shape, 1);
    if (shape.batches > 1) tally.Replay(shape, shape.batches - 1, shape.shape);
  }
  // The cache never freezes.
  if (held == all.size() && std::ssize(shapes) < freeze_at) {
    evaluate(held <= first_epoch ? schedule.eval_shapes : TestShapes(schedule));
  }
  for (const BatchShape& shape : sealing) {
    if (holds(shape)) continue;
    shapes.push_back(shape);
    ++row.captures;
  }
  row.train_executables = std::ssize(shapes);
  for (size_t i = held; i < all.size(); ++i) {
    const PlannedShape& shape = all[i];
    int64_t batches = shape.batches;
    if (std::exchange(first_is_eager, false)) {
      tally.Eager(shape, 1);
      if (--batches == 0) continue;
    }
    if (holds(shape.shape)) {
      tally.Replay(shape, batches, shape.shape);
      continue;
    }
    switch (options.on_miss) {
      case spec::OnMiss::kPad:
        if (const BatchShape* const larger = FindCheapest(shapes, shape.shape)) {
          tally.Replay(shape, batches, *larger);
        } else {
          tally.Eager(shape, batches);
        }
        break;
      case spec::OnMiss::kEager:
        tally.Eager(shape, batches);
        break;
      case spec::OnMiss::kTransient:
        tally.Capture(shape, batches);
        break;
      case spec::OnMiss::kReject:
        row.rejected += batches;
        break;
    }
  }
}

// Counts steps on a ladder. A cache that freezes captures all rungs before the first step. Any other cache captures a
// rung when the first batch is rounded up to it.
void TallyLadder(const spec::PolicyOptions& options, const PlannedSchedule& schedule, const PlannedSet& planned,
                 PlanRow& row, Tally& tally) {
  const PlannedMode& train = planned[static_cast<size_t>(Mode::kTrain)];
  const PlannedMode& eval = planned[static_cast<size_t>(Mode::kEval)];
  const bool has_eval = eval.form == Form::kLadder;
  if (options.policy == spec::Policy::kFreeze) {
    row.train_executables = row.captures = std::ssize(train.shapes);
    row.eval_executables = has_eval ? std::ssize(eval.shapes) : 0;
    for (const PlannedShape& shape : schedule.train) {
      tally.Replay(shape, shape.batches, *FindCheapest(train.shapes, shape.shape));
    }
    return;
  }
  std::set<BatchShape> met, eval_met;
  for (const PlannedShape& shape : schedule.train) {
    const BatchShape& rung = *FindCheapest(train.shapes, shape.shape);
    const int64_t captured = met.insert(rung).second ? 1 : 0;
    if (captured > 0) tally.CaptureAt(shape, captured, rung);
    if (shape.batches > captured) tally.Replay(shape, shape.batches - captured, rung);
  }
  for (const ShapeCount& shape : schedule.eval_schedule) {
    const BatchShape* const rung = has_eval ? FindCheapest(eval.shapes, shape.shape) : nullptr;
    if (rung != nullptr) eval_met.insert(*rung);
  }
  row.train_executables = std::ssize(met);
  row.eval_executables = std::ssize(eval_met);
}

// Returns the shape schedule that the cache would have.
ShapeSchedule PlanOf(const PlannedSchedule& schedule) {
  ShapeSchedule plan{.train_ceiling = schedule.ceiling,
                     .train_shapes = 0,
                     .known_train_shapes = std::ssize(schedule.train),
                     .train_rungs = schedule.rungs,
                     .eval_rungs = schedule.eval_rungs,
                     .train_schedule = CountsOf(schedule),
                     .eval_schedule = schedule.eval_schedule};
  return plan;
}

}  // namespace

std::vector<ShapeCount> CountsOf(const PlannedSchedule& schedule) {
  std::vector<ShapeCount> counts;
  counts.reserve(schedule.train.size());
  for (const PlannedShape& s : schedule.train) counts.push_back({s.shape, s.batches});
  // If the schedule was not walked to its end, adds the ceiling, which holds every batch.
  if (schedule.cut) counts.push_back({schedule.ceiling, 0});
  for (const BatchShape& rung : schedule.rungs) {
    if (std::ranges::find(schedule.train, rung, &PlannedShape::shape) == schedule.train.end()) {
      counts.push_back({rung, 0});
    }
  }
  return counts;
}

int64_t Batches(const PlannedSchedule& schedule) {
  int64_t batches = 0;
  for (const PlannedShape& shape : schedule.train) batches += shape.batches;
  return batches;
}

PlanRow PlanPolicy(const spec::PolicyOptions& options, const PlannedSchedule& schedule, int64_t freeze_at,
                   const std::string& no_dynamic_reason, const std::optional<StepCosts>& costs, bool pads) {
  PlanRow row{.options = options, .shapes = FormOf(options, no_dynamic_reason.empty())};
  Tally tally(row);
  const Form form = row.shapes == spec::Shapes::kDynamic  ? Form::kDynamic
                    : row.shapes == spec::Shapes::kLadder ? Form::kLadder
                                                          : Form::kExact;
  PlannedSet planned;
  if (form != Form::kExact || options.policy == spec::Policy::kFreeze) {
    planned = PlanExecutables(options, PlanOf(schedule), {form, form}, freeze_at);
  }
  if (form == Form::kDynamic) {
    // A cache that freezes captures the dynamic executable before the first step. Any other cache captures it at the
    // first batch.
    int64_t captured = options.policy == spec::Policy::kFreeze ? 0 : 1;
    row.train_executables = 1;
    row.captures = 1 - captured;
    row.eval_executables = planned[static_cast<size_t>(Mode::kEval)].most;
    for (const PlannedShape& shape : schedule.train) tally.RunDynamic(shape, std::exchange(captured, 0));
  } else if (form == Form::kLadder) {
    TallyLadder(options, schedule, planned, row, tally);
  } else if (options.policy == spec::Policy::kFreeze && freeze_at > 0) {
    TallyExactFreeze(options, schedule, freeze_at, planned, row, tally);
  } else if (!KeepsNothing(options.policy)) {
    TallyExact(options, schedule, pads, row, tally);
  } else {
    for (const PlannedShape& shape : schedule.train) {
      options.policy == spec::Policy::kNever ? tally.Eager(shape, shape.batches) : tally.Capture(shape, shape.batches);
    }
  }
  if (costs) tally.Price(*costs);
  return row;
}

void FillRows(CachePlan& plan) {
  const auto add = [&](spec::PolicyOptions options, size_t schedule) {
    if (!plan.pads) {
      options = WithoutPadding(options);
      if (!plan.no_dynamic_reason.empty() && WantsDynamic(options)) options.shapes = spec::Shapes::kExact;
    }
    PlanRow row = PlanPolicy(options, plan.schedules[schedule], plan.freeze_point.freeze_at, plan.no_dynamic_reason,
                             plan.costs, plan.pads);
    row.schedule = static_cast<int64_t>(schedule);
    plan.rows.push_back(row);
  };
  const auto with = [&](spec::Policy policy, spec::Shapes shapes, spec::OnMiss on_miss, int64_t rungs) {
    spec::PolicyOptions options = plan.options;
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
      add(with(spec::Policy::kAlways, spec::Shapes::kExact, spec::OnMiss::kPad, rungs), s);
      add(with(spec::Policy::kNever, spec::Shapes::kExact, spec::OnMiss::kPad, rungs), s);
      add(with(spec::Policy::kClearPerStep, spec::Shapes::kExact, spec::OnMiss::kPad, rungs), s);
      add(with(spec::Policy::kFreeze, spec::Shapes::kExact, spec::OnMiss::kTransient, rungs), s);
      add(with(spec::Policy::kFreeze, spec::Shapes::kExact, spec::OnMiss::kPad, rungs), s);
    }
    // A single shape needs no ladder. A ladder has at most as many rungs as there are shapes.
    const auto shapes = std::ssize(CountsOf(plan.schedules[s]));
    for (int64_t fewer = 1; const int64_t k : kLadderRungs) {
      if (plan.pads && shapes > fewer)
        add(with(spec::Policy::kFreeze, spec::Shapes::kLadder, spec::OnMiss::kPad, k), s);
      fewer = k;
    }
    if (plan.no_dynamic_reason.empty())
      add(with(spec::Policy::kFreeze, spec::Shapes::kDynamic, spec::OnMiss::kPad, rungs), s);
  }
  Recommend(plan);
}

namespace {

// Times that differ by less than this factor count as equal.
constexpr double kAsFast = 1.01;
// If padding adds a smaller fraction of rows than this, a smaller number of executables is preferred to fewer rows.
constexpr double kFewRows = 0.02;

std::string Describe(const PlanRow& row, const CachePlan& plan) {
  std::string text(spec::kPolicyNames.Name(row.options.policy));
  // Gives the policy the name that it has in the table of rows.
  if (row.options.policy == spec::Policy::kFreeze && row.shapes == spec::Shapes::kExact) {
    const int64_t freeze_at = plan.freeze_point.freeze_at;
    text += freeze_at > 0 ? absl::StrCat(" at ", freeze_at) : " never";
    text += ", ";
    text += spec::kOnMissNames.Name(row.options.on_miss);
  }
  if (row.shapes == spec::Shapes::kDynamic) absl::StrAppend(&text, " with one executable for every shape");
  if (row.shapes == spec::Shapes::kLadder) absl::StrAppend(&text, " with a ladder of ", row.train_executables);
  if (plan.schedules.size() > 1) {
    absl::StrAppend(&text, ", ", plan.schedules[static_cast<size_t>(row.schedule)].batching, " batches");
  }
  return text;
}

double RowsAdded(const PlanRow& row) {
  return row.real_rows == 0 ? 0 : static_cast<double>(row.padding_rows) / static_cast<double>(row.real_rows);
}

// Returns true if the cache is sealed in the end, so that every further training or evaluation step is a replay. A
// cache of exact shapes must also pad misses, because a batch of a new shape would otherwise have no executable.
bool IsSealed(const PlanRow& row) {
  const bool serves_all = row.shapes != spec::Shapes::kExact || row.options.on_miss == spec::OnMiss::kPad;
  return row.options.policy == spec::Policy::kFreeze && serves_all && row.eager == 0 && row.rejected == 0 &&
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
  // Prefers the job's own batching, then fewer executables, and then fewer added rows.
  if (a.schedule != b.schedule) return a.schedule < b.schedule;
  const int64_t executables = a.train_executables + a.eval_executables;
  const int64_t others = b.train_executables + b.eval_executables;
  return executables != others ? executables < others : RowsAdded(a) < RowsAdded(b);
}

}  // namespace

void Recommend(CachePlan& plan) {
  size_t best = plan.rows.size();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (IsSealed(plan.rows[i]) && (best == plan.rows.size() || IsBetter(plan.rows[i], plan.rows[best]))) best = i;
  }
  plan.recommended = static_cast<int64_t>(best == plan.rows.size() ? 0 : best);
  const PlanRow& row = plan.rows[static_cast<size_t>(plan.recommended)];
  const int64_t executables = row.train_executables + row.eval_executables;
  plan.reason = absl::StrCat(Describe(row, plan), ": every step a replay by ", executables,
                             executables == 1 ? " executable" : " executables", ", never more, ",
                             absl::StrFormat("%.1f %% rows added", 1e2 * RowsAdded(row)));
  if (!row.train_seconds) return;
  const PlanRow& fastest =
      *std::ranges::min_element(plan.rows, {}, [](const PlanRow& other) { return *other.train_seconds; });
  const double times = *row.train_seconds / *fastest.train_seconds;
  // The recommended row is the fastest of the rows that replay every step.
  absl::StrAppend(&plan.reason,
                  times < kAsFast
                      ? ", as fast as any"
                      : absl::StrFormat(", training takes, with its captures, %.3g times as long as under the "
                                        "fastest of all, which does not replay every step: %s",
                                        times, Describe(fastest, plan)));
}

}  // namespace permafrost::graphcache
