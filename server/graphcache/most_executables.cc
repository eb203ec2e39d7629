#include "graphcache/most_executables.h"

#include <algorithm>

#include "graphcache/planned_set.h"

namespace permafrost::graphcache {

int64_t MostExecutables(const PolicyOptions& options, const ShapePlan& plan, bool dynamic, int64_t freeze_at) {
  const auto of = [](const auto& list, int64_t most) { return std::min<int64_t>(std::ssize(list), most); };
  // Captured for one step, and dropped.
  if (KeepsNothing(options.policy)) return options.policy == Policy::kClearPerStep ? 1 : 0;
  const int64_t limit = LimitOf(options);
  if (dynamic && WantsDynamic(options)) return std::min<int64_t>(2, limit);
  if (WantsLadder(options)) {
    return std::min(limit, of(plan.train_schedule, RungsOf(options)) +
                               of(plan.eval_schedule, std::min(RungsOf(options), kMaxEvalRungs)));
  }
  if (options.policy == Policy::kFreeze) {
    return std::min(limit, std::min(freeze_at, plan.known_train_shapes) + of(plan.eval_rungs, kMaxEvalRungs));
  }
  return std::min(limit, plan.known_train_shapes + std::ssize(plan.eval_schedule));
}

}  // namespace permafrost::graphcache
