// Foresees how many executables a job's cache comes to hold, as far as its plan tells.
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "graphcache/freeze_point.h"
#include "graphcache/shape_plan.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

// Returns the most that both modes hold at once. `dynamic`: one executable may serve every shape of a mode.
// `freeze_at`: of FindFreezePoint, for exact shapes.
int64_t MostExecutables(const spec::PolicyOptions& options, const ShapePlan& plan, bool dynamic, int64_t freeze_at);
// The same without a plan: of a job whose batches are padded to `shapes` shapes, those of both modes.
int64_t MostExecutables(const spec::PolicyOptions& options, int64_t shapes);

}  // namespace permafrost::graphcache
