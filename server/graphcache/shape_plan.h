// A job's plan, made before its first step. It says which batch shapes come, when the job's cache freezes, and which
// executables the cache holds.
// Sampling is seeded, so every batch of every planned epoch is known. train/ reports the shapes, and this file sums
// them up. All shapes are least padded shapes: one node and one graph more than the batch has.
// Threads: values and pure functions. One thread at a time uses a ShapeCounter.
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
  int64_t count = 0;  // batches of this shape
  bool operator==(const ShapeCount&) const = default;
};

class ShapeCounter {
 public:
  void Add(const BatchShape& shape, int64_t count = 1);
  // Returns the counts, ordered by shape.
  std::vector<ShapeCount> Counts() const;
  int64_t distinct() const { return static_cast<int64_t>(counts_.size()); }
  int64_t batches() const { return batches_; }

 private:
  std::map<BatchShape, int64_t> counts_;
  int64_t batches_ = 0;
};

// Returns the least shape that holds all `shapes`; zeros if there are none.
BatchShape Ceiling(const std::vector<ShapeCount>& shapes);

// Returns the rows (nodes + edges) of a step at `shape`. Padding is measured in rows, and "cheapest" means the fewest
// rows.
int64_t Rows(const BatchShape& shape);

// Returns the shape with the fewest rows among those of `shapes` that hold `shape`: the first if several have as few,
// nullptr if there is none.
const BatchShape* FindCheapest(std::span<const BatchShape> shapes, const BatchShape& shape);

// The most distinct shapes that Ladder works on.
inline constexpr int64_t kMaxLadderShapes = 2048;
// Returns at most kMaxLadderShapes shapes, ordered by rows. Each is the ceiling of neighbours in that order.
std::vector<ShapeCount> MergeNeighbours(const std::vector<ShapeCount>& shapes);
// Returns at most `max_rungs` shapes, ordered by rows, such that some rung holds each of `shapes`. The last rung
// holds all of them. Dynamic programming over the shapes, ordered by rows, finds the rungs for which padding adds the
// fewest rows.
// If there are at most `max_rungs` distinct shapes, returns exactly those; then no rung needs to hold all. If there
// are more than kMaxLadderShapes, they are first merged by MergeNeighbours. A `max_rungs` below 1 counts as 1.
std::vector<BatchShape> Ladder(const std::vector<ShapeCount>& shapes, int64_t max_rungs);

// The batch shapes that a job will have.
struct ShapeSchedule {
  // The least shape that holds every training batch.
  BatchShape train_ceiling;
  // Distinct shapes of the training schedule; 0 if the schedule was too long to be walked to its end. The ceiling is
  // then the proven bound: the largest graphs of the split together.
  int64_t train_shapes = 0;
  // Distinct shapes of the part of the schedule that was walked: equal to train_shapes, or fewer than there will be.
  int64_t known_train_shapes = 0;
  // The few shapes that training batches are rounded up to before they reach the cache, rising, the ceiling last.
  // Empty if batches come at their own shapes.
  // A ladder consists of some of them. Under Shapes::kExact a freeze captures all of them, and without an explicit
  // freeze point the cache freezes after its first step.
  std::vector<BatchShape> train_rungs;
  // The shapes that evaluation batches are padded to under kFreeze and Shapes::kExact. Some rung holds each batch.
  // There are at most kMaxEvalRungs.
  std::vector<BatchShape> eval_rungs;
  // The schedule of each mode, merged by MergeNeighbours. A ladder of any number of rungs can be made from it while
  // the job runs. Empty if nothing is known.
  // A training schedule that was not walked to its end holds the part that was walked, and the ceiling with a count
  // of 0. For sampled blocks it holds each planned rung with its expected count, estimated from a few sampled
  // batches.
  std::vector<ShapeCount> train_schedule, eval_schedule;
  // The results of LadderOf for `max_rungs` rungs, if they were made already.
  struct Ladders {
    int64_t max_rungs = 0;
    std::vector<BatchShape> train, eval;
    bool operator==(const Ladders&) const = default;
  };
  std::optional<Ladders> ladders = std::nullopt;
  bool operator==(const ShapeSchedule&) const = default;
};
inline constexpr int64_t kMaxEvalRungs = 32;

// Returns the shapes, rising, that the mode's batches are rounded up to under Shapes::kLadder. Some shape holds each
// batch. There are at most `max_rungs`, and in evaluation at most kMaxEvalRungs. Empty if nothing is planned.
// If the plan already rounds batches up, returns some of its rungs; or all of them, if the plan does not say how many
// batches each rung has.
std::vector<BatchShape> LadderOf(const ShapeSchedule& plan, Mode mode, int64_t max_rungs);
// Fills plan.ladders.
void MakeLadders(int64_t max_rungs, ShapeSchedule& plan);

// Returns a job's shape plan as JSON, for storage.
// Threads: pure functions.
std::string ToJson(const ShapeSchedule& plan);
// Errors: DataLoss, which names the fault.
absl::StatusOr<ShapeSchedule> ShapeScheduleFromJson(const std::string& text);

// Sizes of the graphs of a train split. Standard deviations are those of a population.
struct GraphSizes {
  int64_t graphs = 0;
  double std_nodes = 0, std_edges = 0;
  double mean_nodes = 0, mean_edges = 0;
};

enum class FreezeSource {
  kNone,      // no freeze point: the cache never freezes by itself
  kExplicit,  // freeze_at of the policy
  kFormula,   // the formula of FindFreezePoint
  kSchedule,  // the job's planned shapes, if the formula has no answer or is not needed
};
inline constexpr EnumNames<FreezeSource, 4> kFreezeSourceNames{{{{FreezeSource::kNone, "none"},
                                                                 {FreezeSource::kExplicit, "explicit"},
                                                                 {FreezeSource::kFormula, "formula"},
                                                                 {FreezeSource::kSchedule, "schedule"}}}};

struct FreezePoint {
  int64_t freeze_at = 0;  // distinct training shapes; 0 if the cache never freezes by itself
  FreezeSource source = FreezeSource::kNone;
  double effective_size = 0;      // eff_2d of the formula; 0 if it was not used
  std::string no_formula_reason;  // why the formula has no answer, in one line; empty if it has one or was not used
  bool operator==(const FreezePoint&) const = default;
};

// The most shapes that are kept if the formula has no answer. The frozen cache pads other shapes into those that it
// holds.
inline constexpr int64_t kMaxScheduleFreezeAt = 128;

// Returns `explicit_freeze_at` if it is positive, and otherwise the freeze point of #10689,
//   eff_2d = sqrt(B) * std(nodes) * sqrt(B) * std(edges) * 2 * pi,  freeze_at = max(5, int(sqrt(eff_2d)))
// with B = batch_size (graphs). Without graphs, or if a standard deviation is 0 or not finite, the formula has no
// answer. Then the freeze point is `planned_shapes`, at most kMaxScheduleFreezeAt. If that is 0 too, there is no
// freeze point.
// `planned_shapes` is the number of distinct training shapes that the schedule is known to have
// (ShapeSchedule::known_train_shapes).
FreezePoint FindFreezePoint(int64_t explicit_freeze_at, int64_t batch_size, const GraphSizes& sizes,
                            int64_t planned_shapes);

// The rest of this file plans the executables that a job's cache holds, and what max_executables leaves of them.

// The number of shapes that one executable of a mode serves.
enum class Form {
  kDynamic,  // one executable for every shape
  kLadder,   // one executable for each rung
  kExact,    // one executable for each shape that comes
};

// The plan of one mode.
struct PlannedMode {
  Form form = Form::kExact;
  // The shapes that are captured ahead. Empty if nothing is planned.
  // For a ladder these are the rungs, rising. For exact shapes they are what a freeze seals with, the training
  // ceiling first. A dynamic mode has the shapes that it would have if it were exact and padded.
  std::vector<BatchShape> shapes;
  // Executables that the mode would hold at the end, and those that the limit leaves. Invariant: `most` <= `wanted`.
  int64_t wanted = 0, most = 0;
  bool operator==(const PlannedMode&) const = default;
};

using PlannedSet = std::array<PlannedMode, 2>;  // indexed by Mode

// Plans the executables of both modes. `forms` holds the form of each mode, indexed by Mode. `freeze_at` is the
// freeze point of exact shapes (FindFreezePoint).
// A ladder for which nothing is planned, or of which the limit leaves no rung, becomes Form::kExact in the result.
// If both modes together want more than the limit, evaluation gets what it wants, but at most the larger of half the
// limit and what training leaves. Training gets the rest. A limit of 1 goes to training.
PlannedSet PlanExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, std::array<Form, 2> forms,
                           int64_t freeze_at);

// Returns the limit of `options`. No limit is the largest int64_t.
int64_t LimitOf(const spec::PolicyOptions& options);

// Returns the most executables that both modes hold at once, as far as the plan tells. `dynamic` says that one
// executable may serve every shape of a mode. `freeze_at` is the freeze point of exact shapes (FindFreezePoint).
int64_t MostExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, bool dynamic, int64_t freeze_at);
// Returns the most executables for a job without a plan, whose batches are padded to `shapes` shapes in total over
// both modes.
int64_t MostExecutables(const spec::PolicyOptions& options, int64_t shapes);

}  // namespace permafrost::graphcache
