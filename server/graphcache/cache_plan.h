// Computes, from a job's planned batches and before the job trains, what each cache policy would cost.
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/step.h"
#include "graphcache/shape_plan.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

// The training batches of one shape.
struct PlannedShape {
  BatchShape shape;          // the least padded shape
  int64_t batches = 0;       // batches in the whole run
  int64_t real_rows = 0;     // nodes and edges of all these batches, without padding
  int64_t dynamic_rows = 0;  // nodes and edges of all these batches at their dynamic shapes
  bool operator==(const PlannedShape&) const = default;
};

// All batches of a run under one kind of batching.
struct PlannedSchedule {
  std::string batching;                  // name of the kind of batching, as in the job's options
  int64_t max_nodes = 0, max_edges = 0;  // budget of a batch; 0 if there is no bound
  std::vector<PlannedShape> train;       // distinct shapes, in the order of their first batches
  int64_t first_epoch_shapes = 0;        // number of leading elements of `train` that the first epoch has
  int64_t epochs = 0;
  // True if `train` holds rungs with estimated counts. For the estimate, some batches are sampled and rounded up to
  // the rungs, and their counts are scaled up to the whole run.
  bool estimated = false;
  // If `estimated`: `sampled_batches` is the number of sampled batches. `sampled_shapes` is the number of distinct
  // shapes that these batches had before they were rounded up.
  int64_t sampled_batches = 0, sampled_shapes = 0;
  // All rungs to which batches are rounded up before they reach the cache, in rising order. Empty if batches keep
  // their own shapes.
  std::vector<BatchShape> rungs;
  // True if the schedule is longer than the part that was walked. `train` then holds only the walked part.
  bool cut = false;
  BatchShape ceiling;  // the least shape that holds every training batch
  std::vector<BatchShape> eval_rungs;
  std::vector<ShapeCount> eval_schedule;  // like ShapeSchedule::eval_schedule
  // `eval_shapes` is the number of distinct shapes of all evaluation batches. `valid_shapes` is the number of
  // distinct shapes of the validation split's batches alone, which are evaluated first.
  int64_t eval_shapes = 0, valid_shapes = 0;
};

// Returns the number of training batches of each shape. If the schedule was cut, adds the ceiling with a count of 0.
// If the counts are estimated, adds the rungs without a sampled batch, also with a count of 0.
std::vector<ShapeCount> CountsOf(const PlannedSchedule& schedule);
// Returns the number of training batches of the schedule.
int64_t Batches(const PlannedSchedule& schedule);

// The time of a step, in seconds, as a function of its rows (nodes and edges).
struct StepTime {
  double fixed = 0, per_row = 0;
  double Of(double rows) const { return fixed + per_row * rows; }
};

// Costs that were measured on the device that will run the job.
struct StepCosts {
  StepTime replay, eager;
  double padding_row = 0;  // seconds that one padding row adds to a replay
  // Seconds to make one executable of a training or an evaluation step. The first two executables serve one shape,
  // and the dynamic ones serve every shape.
  double capture = 0, eval_capture = 0;
  double dynamic_capture = 0, dynamic_eval_capture = 0;
  // Bytes that one executable keeps for itself.
  int64_t entry_bytes = 0, eval_entry_bytes = 0;
  int64_t dynamic_entry_bytes = 0, dynamic_eval_entry_bytes = 0;
  int64_t shared_bytes = 0;  // bytes that all executables share
};

// The predicted outcome of one policy on one schedule. All counts of steps refer to the training steps of the whole
// run.
struct PlanRow {
  spec::PolicyOptions options;
  spec::Shapes shapes = spec::Shapes::kExact;  // the form that results from the options; never kAuto
  int64_t schedule = 0;                        // index into CachePlan::schedules
  // Executables held at the end of the run.
  int64_t train_executables = 0, eval_executables = 0;
  int64_t captures = 0;  // captures of the training step
  // `replayed` counts replayed steps, and `padded` those of them that are padded into a larger shape. `eager` counts
  // steps that run eager. A step that is neither replayed nor eager nor rejected is captured.
  int64_t replayed = 0, padded = 0, eager = 0;
  int64_t real_rows = 0, padding_rows = 0;
  int64_t rejected = 0;  // steps whose shape fails the job (on_miss reject)
  // Set only if costs were measured.
  std::optional<int64_t> bytes;
  std::optional<double> step_seconds;   // mean of a training step, without captures
  std::optional<double> train_seconds;  // all training steps and captures
};

// Returns the outcome of `options`. `no_dynamic_reason` says why the job has no dynamic executables, and is empty if
// it has them. If `pads` is false, no batch is padded into a larger executable.
PlanRow PlanPolicy(const spec::PolicyOptions& options, const PlannedSchedule& schedule, int64_t freeze_at,
                   const std::string& no_dynamic_reason, const std::optional<StepCosts>& costs, bool pads = true);

struct CachePlan {
  spec::PolicyOptions options;  // options of the job
  FreezePoint freeze_point;     // the freeze point of #10689, for exact shapes
  std::string no_dynamic_reason;
  bool pads = true;                        // same as GraphCacheSetup::pads
  std::vector<PlannedSchedule> schedules;  // the first one is the job's own batching
  std::vector<PlanRow> rows;
  std::optional<StepCosts> costs;
  std::string no_costs_reason;  // why no costs were measured, in one line
  int64_t recommended = 0;      // index into `rows`
  std::string reason;           // reason for the recommendation, in one line
};

// Fills `rows`, `recommended` and `reason` from the other fields. The first row is the job's own policy. Next come
// rows for the policies of #10689, for one executable for every shape, and for ladders of 1, 4, 8 and 16 rungs. Each
// policy has a row for every schedule that it suits.
void FillRows(CachePlan& plan);

// Fills `recommended` and `reason` from the rows; there must be at least one row. The candidates are the rows whose
// cache is sealed in the end, so that every further step is a replay. Recommends the fastest candidate or, if nothing
// was measured, the one whose padding adds the fewest rows. Among about equal candidates, recommends the simplest.
// Without a candidate, recommends the first row.
void Recommend(CachePlan& plan);

}  // namespace permafrost::graphcache
