// The executables that a job's cache plans to hold, and what max_executables leaves of them.
// Threads: values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/batch_shape.h"
#include "base/mode.h"
#include "graphcache/shape_plan.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

// For how many shapes the executables of a mode are.
enum class Form {
  kDynamic,  // one for every shape
  kLadder,   // one for each rung
  kExact,    // one for each shape that comes
};

// The plan of one mode.
struct PlannedMode {
  Form form = Form::kExact;
  // Captured ahead: the rungs, rising; for exact shapes what a freeze seals with, the ceiling of training first. For a
  // dynamic mode, what it would be for exact ones that are padded; empty: nothing is planned.
  std::vector<BatchShape> shapes;
  // Executables that it would hold at the end, and those that the limit leaves: `most` <= `wanted`.
  int64_t wanted = 0, most = 0;
  bool operator==(const PlannedMode&) const = default;
};

using PlannedSet = std::array<PlannedMode, 2>;  // by Mode

// forms: of each mode, by Mode. A ladder of which the limit leaves no rung is Form::kExact in the result, and so is one
// of which nothing is planned. freeze_at: of exact shapes (FindFreezePoint).
// Where both modes together want more than the limit, evaluation has half of it, or what it wants, or what training
// leaves; training has the rest. Of 1 that is training's.
PlannedSet PlanExecutables(const spec::PolicyOptions& options, const ShapePlan& plan, std::array<Form, 2> forms,
                           int64_t freeze_at);

// The limit of `options`; none is larger than all that can be.
int64_t LimitOf(const spec::PolicyOptions& options);

}  // namespace permafrost::graphcache
