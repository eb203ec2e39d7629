// Plans when a job's cache freezes, and which executables it holds.
// Threads: values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "base/step.h"
#include "graphcache/shape_schedule.h"
#include "spec/policy.h"

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
// planned_shapes: distinct training shapes that the schedule is known to have (ShapeSchedule::known_train_shapes).
FreezePoint FindFreezePoint(int64_t explicit_freeze_at, int64_t batch_size, const GraphSizes& sizes,
                            int64_t planned_shapes);

// The executables that a job's cache plans to hold, and what max_executables leaves of them.

// For how many shapes the executables of a mode are.
enum class Form {
  kDynamic,  // one for every shape
  kLadder,   // one for each rung
  kExact,    // one for each shape that comes
};

// The plan of one mode.
struct PlannedMode {
  Form form = Form::kExact;
  // The shapes that are captured ahead: the rungs, rising. For exact shapes these are what a freeze seals with, the
  // ceiling of training first. A dynamic mode has what it would have for exact, padded shapes. Empty: nothing is
  // planned.
  std::vector<BatchShape> shapes;
  // Executables that it would hold at the end, and those that the limit leaves: `most` <= `wanted`.
  int64_t wanted = 0, most = 0;
  bool operator==(const PlannedMode&) const = default;
};

using PlannedSet = std::array<PlannedMode, 2>;  // by Mode

// forms: of each mode, by Mode. A ladder of which the limit leaves no rung is Form::kExact in the result, and so is one
// of which nothing is planned. freeze_at: of exact shapes (FindFreezePoint).
// Where both modes together want more than the limit, evaluation has half of it, or what it wants, or what training
// leaves; training has the rest. A limit of 1 is training's.
PlannedSet PlanExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, std::array<Form, 2> forms,
                           int64_t freeze_at);

// The limit of `options`; none is larger than all that can be.
int64_t LimitOf(const spec::PolicyOptions& options);

// Foresees, as far as the plan tells, the most executables that both modes hold at once. `dynamic`: one executable may
// serve every shape of a mode. `freeze_at`: of FindFreezePoint, for exact shapes.
int64_t MostExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, bool dynamic, int64_t freeze_at);
// Returns the same without a plan, for a job whose batches are padded to `shapes` shapes, both modes together.
int64_t MostExecutables(const spec::PolicyOptions& options, int64_t shapes);

}  // namespace permafrost::graphcache
