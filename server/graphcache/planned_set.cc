#include "graphcache/planned_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace permafrost::graphcache {
namespace {

constexpr double kLeastFreezeAt = 5;
// The number at which doubles stop counting in ones; no schedule has as many shapes.
constexpr double kMostFreezeAt = 9007199254740992.0;

std::string NoFormulaReason(const GraphSizes& sizes, double effective_size) {
  if (sizes.graphs <= 0) return "the train split has no graphs to derive a freeze point from";
  if (!std::isfinite(effective_size)) return "the sizes of the train split's graphs have no finite standard deviation";
  if (sizes.std_nodes == 0) return "all graphs of the train split have equally many nodes";
  if (sizes.std_edges == 0) return "all graphs of the train split have equally many edges";
  return "";
}

}  // namespace

FreezePoint FindFreezePoint(int64_t explicit_freeze_at, int64_t batch_size, const GraphSizes& sizes,
                            int64_t planned_shapes) {
  if (explicit_freeze_at > 0) return {.freeze_at = explicit_freeze_at, .source = FreezeSource::kExplicit};
  const double root = std::sqrt(static_cast<double>(batch_size));
  const double effective_size = root * sizes.std_nodes * root * sizes.std_edges * 2 * std::numbers::pi;
  if (std::string reason = NoFormulaReason(sizes, effective_size); !reason.empty()) {
    return {.freeze_at = std::clamp<int64_t>(planned_shapes, 0, kMaxScheduleFreezeAt),
            .source = planned_shapes > 0 ? FreezeSource::kSchedule : FreezeSource::kNone,
            .no_formula_reason = std::move(reason)};
  }
  const double freeze_at = std::clamp(std::sqrt(effective_size), kLeastFreezeAt, kMostFreezeAt);
  return {
      .freeze_at = static_cast<int64_t>(freeze_at), .source = FreezeSource::kFormula, .effective_size = effective_size};
}

namespace {

// Returns what a freeze seals exact shapes with. For a dynamic mode this is everything that is planned: its one
// executable is captured whatever a miss would mean.
std::vector<BatchShape> Sealing(const spec::PolicyOptions& options, const ShapeSchedule& plan, Mode mode, Form form) {
  std::vector<BatchShape> shapes;
  // Batches that come at rungs keep them. Others are padded to what is sealed with, but where a miss is captured and
  // dropped or runs eager: that is #10689's cache, which holds the shapes that came and no other.
  const bool at_rungs = !plan.train_rungs.empty();
  const bool pads = options.on_miss == spec::OnMiss::kPad || form == Form::kDynamic;
  if (mode == Mode::kEval) {
    // A cache that rejects misses would end the job at its first evaluation after the freeze.
    return at_rungs || pads || options.on_miss == spec::OnMiss::kReject ? plan.eval_rungs : shapes;
  }
  if (!at_rungs && !pads) return shapes;
  // Nothing was planned where the ceiling holds no graph.
  if (plan.train_ceiling.graphs > 0) shapes.push_back(plan.train_ceiling);
  for (const BatchShape& rung : plan.train_rungs) {
    if (rung != plan.train_ceiling) shapes.push_back(rung);
  }
  return shapes;
}

PlannedMode Wanted(const spec::PolicyOptions& options, const ShapeSchedule& plan, Mode mode, Form form,
                   int64_t freeze_at) {
  PlannedMode planned{.form = form, .shapes = Sealing(options, plan, mode, form)};
  if (form == Form::kLadder) {
    planned.shapes = LadderOf(plan, mode, RungsOf(options));
    if (planned.shapes.empty()) planned.form = Form::kExact;
  }
  planned.wanted = std::ssize(planned.shapes);
  if (form == Form::kDynamic) planned.wanted = std::min<int64_t>(planned.wanted, 1);
  if (form == Form::kExact && mode == Mode::kTrain && plan.train_rungs.empty()) {
    const int64_t known = plan.known_train_shapes;
    planned.wanted += freeze_at > 0 && known > 0 ? std::min(freeze_at, known) : std::max(freeze_at, known);
  }
  return planned;
}

// Returns at most `most` of the planned shapes.
std::vector<BatchShape> Fewer(const ShapeSchedule& plan, Mode mode, int64_t most) {
  std::vector<BatchShape> rungs = LadderOf(plan, mode, most);
  if (std::ssize(rungs) <= most) return rungs;
  // The plan does not say how many batches each has.
  std::vector<ShapeCount> counts;
  for (const BatchShape& rung : rungs) counts.push_back({rung, 1});
  return Ladder(counts, most);
}

void Cut(const ShapeSchedule& plan, Mode mode, PlannedMode& planned) {
  if (planned.form == Form::kDynamic || std::ssize(planned.shapes) <= planned.most) return;
  if (planned.most == 0) {
    planned.shapes.clear();
    planned.form = Form::kExact;
    return;
  }
  planned.shapes = Fewer(plan, mode, planned.most);
  // The ceiling is the first exact shape to be captured.
  if (planned.form == Form::kExact && mode == Mode::kTrain) {
    std::ranges::rotate(planned.shapes, planned.shapes.end() - 1);
  }
}

}  // namespace

int64_t LimitOf(const spec::PolicyOptions& options) {
  return options.max_executables > 0 ? options.max_executables : std::numeric_limits<int64_t>::max();
}

PlannedSet PlanExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, std::array<Form, 2> forms,
                           int64_t freeze_at) {
  PlannedSet set;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const auto i = static_cast<size_t>(mode);
    set[i] = Wanted(options, plan, mode, forms[i], freeze_at);
  }
  PlannedMode& train = set[static_cast<size_t>(Mode::kTrain)];
  PlannedMode& eval = set[static_cast<size_t>(Mode::kEval)];
  const int64_t limit = LimitOf(options);
  eval.most = std::min(eval.wanted, std::max(limit / 2, limit - train.wanted));
  train.most = std::min(train.wanted, limit - eval.most);
  Cut(plan, Mode::kTrain, train);
  Cut(plan, Mode::kEval, eval);
  return set;
}

int64_t MostExecutables(const spec::PolicyOptions& options, int64_t shapes) {
  // Captured for one step, and dropped.
  if (KeepsNothing(options.policy)) return options.policy == spec::Policy::kClearPerStep ? 1 : 0;
  return std::min(LimitOf(options), shapes);
}

int64_t MostExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, bool dynamic,
                        int64_t freeze_at) {
  const auto of = [](const auto& list, int64_t most) { return std::min<int64_t>(std::ssize(list), most); };
  if (KeepsNothing(options.policy)) return MostExecutables(options, 1);
  const int64_t limit = LimitOf(options);
  if (dynamic && WantsDynamic(options)) return std::min<int64_t>(2, limit);
  if (WantsLadder(options)) {
    return std::min(limit, of(plan.train_schedule, RungsOf(options)) +
                               of(plan.eval_schedule, std::min(RungsOf(options), kMaxEvalRungs)));
  }
  if (options.policy == spec::Policy::kFreeze) {
    // The ceiling that misses are padded to; where they are not, evaluation holds the shapes that come.
    const bool pads = options.on_miss == spec::OnMiss::kPad;
    const bool seals_eval = pads || options.on_miss == spec::OnMiss::kReject || !plan.train_rungs.empty();
    return std::min(limit, std::min(freeze_at, plan.known_train_shapes) + (pads ? 1 : 0) +
                               (seals_eval ? of(plan.eval_rungs, kMaxEvalRungs) : std::ssize(plan.eval_schedule)));
  }
  return std::min(limit, plan.known_train_shapes + std::ssize(plan.eval_schedule));
}

}  // namespace permafrost::graphcache
