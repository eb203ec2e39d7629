#include "train/cache_planner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/batch_schedule.h"
#include "train/measure_costs.h"
#include "train/step_compiler.h"
#include "train/task.h"

namespace permafrost::train {
namespace {

graphcache::FreezePoint FreezePointOf(const spec::TrainOptions& options, const Task& task) {
  const graphcache::ShapePlan& shapes = task.plan();
  // As the cache has it: freezing captures the planned rungs, all of them.
  if (const auto rungs = std::ssize(shapes.train_rungs); rungs > 0) {
    const int64_t wanted = options.graph_cache.freeze_at;
    if (wanted == 0) return {.freeze_at = 1, .source = graphcache::FreezeSource::kSchedule};
    return {.freeze_at = std::min<int64_t>(wanted, rungs), .source = graphcache::FreezeSource::kExplicit};
  }
  return graphcache::FindFreezePoint(options.graph_cache.freeze_at, GraphsPerBatch(options, task.sizes()), task.sizes(),
                                     shapes.known_train_shapes);
}

}  // namespace

absl::StatusOr<graphcache::CachePlan> PlanOf(const spec::TrainOptions& options, Task& task,
                                             std::string no_dynamic_reason, const std::function<bool()>& keep_going) {
  graphcache::CachePlan plan{.options = options.graph_cache,
                             .freeze_point = FreezePointOf(options, task),
                             .no_dynamic_reason = std::move(no_dynamic_reason)};
  PF_ASSIGN_OR_RETURN(plan.schedules, task.Schedules(keep_going));
  return plan;
}

absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request, const device::Backend& backend, int threads,
                                                const PlanContext& context, const std::function<bool()>& keep_going) {
  const spec::TrainOptions& options = request.options;
  PF_ASSIGN_OR_RETURN(
      const std::unique_ptr<Task> task,
      Task::Create(options, request.dataset, request.measure ? backend.device() : c10::Device(c10::kCPU), threads,
                   keep_going, context));
  PF_ASSIGN_OR_RETURN(graphcache::CachePlan plan, PlanOf(options, *task, NoDynamicReason(backend, *task), keep_going));
  if (request.measure) {
    absl::StatusOr<MeasuredCosts> measured = MeasureCosts(options, *task, backend, plan.schedules.front(), keep_going);
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

}  // namespace permafrost::train
