// A job's shape plan as JSON, for those who keep it.
// Threads: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "graphcache/shape_plan.h"

namespace permafrost::graphcache {

std::string ToJson(const ShapePlan& plan);
// Errors: DataLoss that names what is wrong.
absl::StatusOr<ShapePlan> ShapePlanFromJson(const std::string& text);

}  // namespace permafrost::graphcache
