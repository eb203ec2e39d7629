#include "graphcache/planned_set.h"

#include <algorithm>
#include <limits>

namespace permafrost::graphcache {
namespace {

// Returns what a freeze seals exact shapes with. For a dynamic mode this is everything that is planned: its one
// executable is captured whatever a miss would mean.
std::vector<BatchShape> Sealing(const spec::PolicyOptions& options, const ShapePlan& plan, Mode mode, Form form) {
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

PlannedMode Wanted(const spec::PolicyOptions& options, const ShapePlan& plan, Mode mode, Form form, int64_t freeze_at) {
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

// At most so many of what is planned.
std::vector<BatchShape> Fewer(const ShapePlan& plan, Mode mode, int64_t most) {
  std::vector<BatchShape> rungs = LadderOf(plan, mode, most);
  if (std::ssize(rungs) <= most) return rungs;
  // The plan does not say how many batches each has.
  std::vector<ShapeCount> counts;
  for (const BatchShape& rung : rungs) counts.push_back({rung, 1});
  return Ladder(counts, most);
}

void Cut(const ShapePlan& plan, Mode mode, PlannedMode& planned) {
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

PlannedSet PlanExecutables(const spec::PolicyOptions& options, const ShapePlan& plan, std::array<Form, 2> forms,
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

}  // namespace permafrost::graphcache
