// A job's plan, made before its first step: the batch shapes that will occur, the freeze point, and the executables
// that the cache is to hold.
// Sampling is seeded, so every batch of every planned epoch is known. train/ reports the shapes, and this file counts
// them. All shapes are least padded shapes, with one node and one graph more than the batch has.
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

// Returns the least shape that holds all `shapes`; all zeros if there are none.
BatchShape Ceiling(const std::vector<ShapeCount>& shapes);

// Returns the rows (nodes + edges) of a step at `shape`. Padding is measured in rows. The "cheapest" shape is the one
// with the fewest rows.
int64_t Rows(const BatchShape& shape);

// Returns the element of `shapes` that holds `shape` with the fewest rows. If several have equally few rows, returns
// the first of them. Returns nullptr if no element of `shapes` holds `shape`.
const BatchShape* FindCheapest(std::span<const BatchShape> shapes, const BatchShape& shape);

// The most distinct shapes from which Ladder computes rungs.
inline constexpr int64_t kMaxLadderShapes = 2048;
// Returns at most kMaxLadderShapes shapes, ordered by rows. Each is the ceiling of a group of `shapes` that are
// consecutive in that order.
std::vector<ShapeCount> MergeNeighbours(const std::vector<ShapeCount>& shapes);
// Returns at most `max_rungs` rungs, ordered by rows. Each of `shapes` fits in some rung, and the last rung holds all
// shapes. Dynamic programming over the shapes, ordered by rows, finds the rungs for which padding adds the fewest
// rows. If there are at most `max_rungs` distinct shapes, returns exactly these shapes. In this case, the last one
// need not hold all shapes. More than kMaxLadderShapes shapes are first merged by MergeNeighbours. A `max_rungs`
// below 1 counts as 1.
std::vector<BatchShape> Ladder(const std::vector<ShapeCount>& shapes, int64_t max_rungs);

// The batch shapes that a job will have.
struct ShapeSchedule {
  // The least shape that holds every training batch.
  BatchShape train_ceiling;
  // The number of distinct shapes of the training schedule, or 0 if the schedule was too long to be walked to its
  // end. In that case, train_ceiling is a proven bound: the largest graphs of the split in one batch.
  int64_t train_shapes = 0;
  // The number of distinct shapes in the walked part of the training schedule; equal to train_shapes if all of it was
  // walked.
  int64_t known_train_shapes = 0;
  // The few shapes to which training batches are rounded up before they reach the cache, in rising order. The last
  // one is the ceiling. Empty if batches keep their own shapes. If not empty, a ladder consists of some of these
  // shapes. Under Shapes::kExact, a freeze captures all of them, and the cache freezes after its first step unless
  // the freeze point is explicit.
  std::vector<BatchShape> train_rungs;
  // The rungs to which evaluation batches are padded under kFreeze and Shapes::kExact, at most kMaxEvalRungs. Each
  // batch fits in some rung.
  std::vector<BatchShape> eval_rungs;
  // The shapes of each mode's schedule, merged by MergeNeighbours. While the job runs, ladders of any number of rungs
  // are made from them. Empty if nothing is known.
  // If the training schedule was not walked to its end, train_schedule holds the walked part, and the ceiling with a
  // count of 0. For sampled blocks, each list holds the planned rungs with their expected counts, estimated from a
  // few sampled batches.
  std::vector<ShapeCount> train_schedule, eval_schedule;
  // The results of LadderOf for both modes and `max_rungs` rungs. Set by MakeLadders.
  struct Ladders {
    int64_t max_rungs = 0;
    std::vector<BatchShape> train, eval;
    bool operator==(const Ladders&) const = default;
  };
  std::optional<Ladders> ladders = std::nullopt;
  bool operator==(const ShapeSchedule&) const = default;
};
inline constexpr int64_t kMaxEvalRungs = 32;

// Returns the shapes to which the mode's batches are rounded up under Shapes::kLadder, in rising order. Each batch
// fits in some shape. There are at most `max_rungs` shapes, and in evaluation at most kMaxEvalRungs. The result is
// empty if nothing is planned.
// If the plan already rounds batches up to rungs, returns some of its rungs, or all of them if the plan has no counts
// of batches.
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
  kFormula,   // the formula in FindFreezePoint
  // The number of the job's planned shapes, because the formula has no answer or is not needed.
  kSchedule,
};
inline constexpr EnumNames<FreezeSource, 4> kFreezeSourceNames{{{{FreezeSource::kNone, "none"},
                                                                 {FreezeSource::kExplicit, "explicit"},
                                                                 {FreezeSource::kFormula, "formula"},
                                                                 {FreezeSource::kSchedule, "schedule"}}}};

struct FreezePoint {
  int64_t freeze_at = 0;  // distinct training shapes; 0 if the cache never freezes by itself
  FreezeSource source = FreezeSource::kNone;
  double effective_size = 0;      // eff_2d of the formula; 0 if it was not used
  std::string no_formula_reason;  // why the formula has no answer, in one line; empty if it has one or was unused
  bool operator==(const FreezePoint&) const = default;
};

// The largest freeze point if the formula has no answer. The frozen cache pads any further shape into one that it
// holds.
inline constexpr int64_t kMaxScheduleFreezeAt = 128;

// Returns `explicit_freeze_at` if it is positive, and otherwise the freeze point of #10689,
//   eff_2d = sqrt(B) * std(nodes) * sqrt(B) * std(edges) * 2 * pi,  freeze_at = max(5, int(sqrt(eff_2d)))
// with B = batch_size (graphs). If there are no graphs, or if a standard deviation is 0 or not finite, the formula
// has no answer. The freeze point is then min(planned_shapes, kMaxScheduleFreezeAt). If this minimum is 0, there is
// no freeze point. `planned_shapes` is the number of distinct training shapes that the schedule is known to have
// (ShapeSchedule::known_train_shapes).
FreezePoint FindFreezePoint(int64_t explicit_freeze_at, int64_t batch_size, const GraphSizes& sizes,
                            int64_t planned_shapes);

// The rest of this file plans the executables of a job's cache: those that the job wants, and those for which
// max_executables leaves room.

// The form of a mode's executables, which says how many shapes one executable serves.
enum class Form {
  kDynamic,  // one executable for every shape
  kLadder,   // one executable for each rung
  kExact,    // one executable for each shape that occurs
};

// The plan of one mode.
struct PlannedMode {
  Form form = Form::kExact;
  // The shapes that are captured ahead. Empty if nothing is planned. A ladder has its rungs here, in rising order. A
  // mode of exact shapes has the shapes that a freeze captures, the training ceiling first. A dynamic mode has the
  // shapes that a mode of exact shapes with padding would have.
  std::vector<BatchShape> shapes;
  // `wanted` is the number of executables that the mode wants to hold in the end. `most` is the number for which the
  // limit leaves room. Invariant: `most` <= `wanted`.
  int64_t wanted = 0, most = 0;
  bool operator==(const PlannedMode&) const = default;
};

using PlannedSet = std::array<PlannedMode, 2>;  // indexed by Mode

// Plans the executables of both modes. `forms` holds the form of each mode, indexed by Mode. `freeze_at` is the
// freeze point of exact shapes (FindFreezePoint).
// If nothing is planned for a ladder, or if the limit leaves none of its rungs, its form in the result is
// Form::kExact. If both modes together want more than the limit, evaluation gets what it wants, up to max(limit / 2,
// limit - what training wants). Training gets the rest. A limit of 1 goes to training.
PlannedSet PlanExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, std::array<Form, 2> forms,
                           int64_t freeze_at);

// Returns the limit of `options`, or the largest int64_t if there is no limit.
int64_t LimitOf(const spec::PolicyOptions& options);

// Returns the most executables that both modes together hold at once, as far as the plan tells. If `dynamic`, one
// executable can serve every shape of a mode. `freeze_at` is the freeze point of exact shapes (FindFreezePoint).
int64_t MostExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, bool dynamic, int64_t freeze_at);
// Returns the most executables of a job without a plan. `shapes` is the number of different shapes to which batches
// of both modes are padded.
int64_t MostExecutables(const spec::PolicyOptions& options, int64_t shapes);

}  // namespace permafrost::graphcache
