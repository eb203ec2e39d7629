#include "graphcache/most_executables.h"

#include <algorithm>

#include "graphcache/planned_set.h"

namespace permafrost::graphcache {

int64_t MostExecutables(const spec::PolicyOptions& options, int64_t shapes) {
  // Captured for one step, and dropped.
  if (KeepsNothing(options.policy)) return options.policy == spec::Policy::kClearPerStep ? 1 : 0;
  return std::min(LimitOf(options), shapes);
}

int64_t MostExecutables(const spec::PolicyOptions& options, const ShapePlan& plan, bool dynamic, int64_t freeze_at) {
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
