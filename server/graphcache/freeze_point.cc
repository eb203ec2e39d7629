#include "graphcache/freeze_point.h"

#include <algorithm>
#include <cmath>
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

}  // namespace permafrost::graphcache
