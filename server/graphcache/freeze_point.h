// After how many training shapes a cache freezes.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/enum_names.h"

namespace permafrost::graphcache {

// Sizes of a train split's graphs; standard deviations are over the population.
struct GraphSizes {
  int64_t graphs = 0;
  double std_nodes = 0, std_edges = 0;
  double mean_nodes = 0, mean_edges = 0;
};

enum class FreezeSource {
  kNone,      // there is no freeze point: the cache never freezes by itself
  kExplicit,  // the policy's freeze_at
  kFormula,   // the formula of FindFreezePoint
  kSchedule,  // the job's planned shapes, where the formula has no answer or is not needed
};
inline constexpr EnumNames<FreezeSource, 4> kFreezeSourceNames{{{{FreezeSource::kNone, "none"},
                                                                 {FreezeSource::kExplicit, "explicit"},
                                                                 {FreezeSource::kFormula, "formula"},
                                                                 {FreezeSource::kSchedule, "schedule"}}}};

struct FreezePoint {
  int64_t freeze_at = 0;  // distinct training shapes; 0: the cache never freezes by itself
  FreezeSource source = FreezeSource::kNone;
  double effective_size = 0;      // eff_2d of the formula; 0 where it was not used
  std::string no_formula_reason;  // one line: why the formula has no answer; empty where it has one or was not asked
  bool operator==(const FreezePoint&) const = default;
};

// The most shapes that are kept where the formula has no answer. A frozen cache pads into those that it holds.
inline constexpr int64_t kMaxScheduleFreezeAt = 128;

// `explicit_freeze_at` where it is positive; else #10689's
//   eff_2d = sqrt(B) * std(nodes) * sqrt(B) * std(edges) * 2 * pi,  freeze_at = max(5, int(sqrt(eff_2d)))
// with B = batch_size (graphs). Without graphs, or where a standard deviation is 0 or not finite, the formula has no
// answer: then `planned_shapes`, at most kMaxScheduleFreezeAt; where that is 0 too, there is no freeze point.
// planned_shapes: distinct training shapes that the schedule is known to have (ShapePlan::known_train_shapes).
FreezePoint FindFreezePoint(int64_t explicit_freeze_at, int64_t batch_size, const GraphSizes& sizes,
                            int64_t planned_shapes);

}  // namespace permafrost::graphcache
