// A job's plan, made before its first step. First what is known of its batch shapes: the sampler is seeded, so that
// every batch of every planned epoch is known; train/ reports the shapes, this file sums them up. All shapes are least
// padded shapes: one node and one graph more than the batch has. Then when the job's cache freezes, and which
// executables it holds. Threads: values and pure functions; ShapeCounter from one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "base/step.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

struct ShapeCount {
  BatchShape shape;
  int64_t count = 0;  // batches
  bool operator==(const ShapeCount&) const = default;
};

class ShapeCounter {
 public:
  void Add(const BatchShape& shape, int64_t count = 1);
  // Ordered by shape.
  std::vector<ShapeCount> Counts() const;
  int64_t distinct() const { return static_cast<int64_t>(counts_.size()); }
  int64_t batches() const { return batches_; }

 private:
  std::map<BatchShape, int64_t> counts_;
  int64_t batches_ = 0;
};

// The least shape that holds all; zeros for none.
BatchShape Ceiling(const std::vector<ShapeCount>& shapes);

// Rows (nodes + edges) of a step at `shape`: what padding is measured by, and what "cheapest" means.
int64_t Rows(const BatchShape& shape);

// The one of `shapes` with the fewest rows that holds `shape`, the first of several; nullptr: none does.
const BatchShape* FindCheapest(std::span<const BatchShape> shapes, const BatchShape& shape);

// At most `max_rungs` shapes that hold every one of `shapes`, each of them by some rung, so that the rows added by
// padding are as few as dynamic programming over the shapes in order of their rows finds, where the last rung holds
// all. Not more than `max_rungs` distinct shapes: exactly those, none of which need hold all. Ordered by rows. More
// than kMaxLadderShapes distinct shapes are first merged with their neighbours. `max_rungs` below 1 counts as 1.
inline constexpr int64_t kMaxLadderShapes = 2048;
// At most kMaxLadderShapes, ordered by rows, each the ceiling of neighbours in that order: what Ladder works on.
std::vector<ShapeCount> MergeNeighbours(const std::vector<ShapeCount>& shapes);
std::vector<BatchShape> Ladder(const std::vector<ShapeCount>& shapes, int64_t max_rungs);

// A job's plan.
struct ShapeSchedule {
  // Holds every training batch.
  BatchShape train_ceiling;
  // Distinct shapes of the training schedule; 0 where it was too long to be walked to its end and the ceiling is the
  // proven bound: the largest graphs of the split together.
  int64_t train_shapes = 0;
  // Distinct shapes of the schedule's beginning, as far as it was walked: train_shapes, or fewer than there will be.
  int64_t known_train_shapes = 0;
  // Where training batches are rounded up to a few shapes before they reach the cache: those, rising, the ceiling last.
  // A ladder is some of them. Under Shapes::kExact freezing captures them all, and without an explicit freeze point the
  // cache freezes after its first step. Empty: batches come at their own shapes.
  std::vector<BatchShape> train_rungs;
  // The shapes that evaluation batches are padded to under kFreeze and Shapes::kExact; some rung holds each of them. At
  // most kMaxEvalRungs.
  std::vector<BatchShape> eval_rungs;
  // The schedule of a mode by MergeNeighbours, so that a ladder of any number of rungs can be made while the job runs.
  // A training schedule that was not walked to its end has what was walked, and the ceiling, 0 times. Sampled blocks
  // have each planned rung, as often as sampled batches let expect. Empty: nothing is known.
  std::vector<ShapeCount> train_schedule, eval_schedule;
  // The result of LadderOf for so many rungs, where it was made already.
  struct Ladders {
    int64_t max_rungs = 0;
    std::vector<BatchShape> train, eval;
    bool operator==(const Ladders&) const = default;
  };
  std::optional<Ladders> ladders = std::nullopt;
  bool operator==(const ShapeSchedule&) const = default;
};
inline constexpr int64_t kMaxEvalRungs = 32;

// The shapes, rising, that the mode's batches are rounded up to under Shapes::kLadder, each of them by some; at most
// `max_rungs`, in evaluation also at most kMaxEvalRungs. Where the plan rounds batches up already, some of its rungs,
// or all where it does not say how many batches each has. Empty: nothing is planned.
std::vector<BatchShape> LadderOf(const ShapeSchedule& plan, Mode mode, int64_t max_rungs);
// Makes plan.ladders.
void MakeLadders(int64_t max_rungs, ShapeSchedule& plan);

// A job's shape plan as JSON, for those who keep it.
// Threads: pure functions.
std::string ToJson(const ShapeSchedule& plan);
// Errors: DataLoss that names what is wrong.
absl::StatusOr<ShapeSchedule> ShapeScheduleFromJson(const std::string& text);

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
