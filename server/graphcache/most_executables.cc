#include "graphcache/most_executables.h"

#include <algorithm>

namespace permafrost::graphcache {

int64_t MostExecutables(const PolicyOptions& options, const ShapePlan& plan, bool dynamic, int64_t freeze_at) {
  const auto of = [](const auto& list, int64_t most) { return std::min<int64_t>(std::ssize(list), most); };
  // Captured for one step, and dropped.
  if (KeepsNothing(options.policy)) return options.policy == Policy::kClearPerStep ? 1 : 0;
  if (dynamic && WantsDynamic(options)) return 2;
  if (WantsLadder(options)) {
    return of(plan.train_schedule, RungsOf(options)) +
           of(plan.eval_schedule, std::min(RungsOf(options), kMaxEvalRungs));
  }
  const int64_t most = options.max_executables > 0 ? options.max_executables : INT64_MAX;
  if (options.policy == Policy::kFreeze) {
    return std::min({freeze_at, plan.known_train_shapes, most}) + of(plan.eval_rungs, kMaxEvalRungs);
  }
  return std::min(plan.known_train_shapes + std::ssize(plan.eval_schedule), most);
}

}  // namespace permafrost::graphcache
