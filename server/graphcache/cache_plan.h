// Tells what each way of keeping executables costs a job, computed from its planned batches before anyone trains.
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

// Training batches of one shape.
struct PlannedShape {
  BatchShape shape;          // least padded
  int64_t batches = 0;       // of the whole run
  int64_t real_rows = 0;     // nodes and edges of all of them, without padding
  int64_t dynamic_rows = 0;  // as a dynamic executable takes them
  bool operator==(const PlannedShape&) const = default;
};

// All batches of a run, composed in one way.
struct PlannedSchedule {
  std::string batching;                  // its name among the job's options
  int64_t max_nodes = 0, max_edges = 0;  // of a budget; 0: no bound
  std::vector<PlannedShape> train;       // distinct shapes in the order of their first batches
  int64_t first_epoch_shapes = 0;        // of them, those of the first epoch
  int64_t epochs = 0;
  // Shapes are rungs, as some sampled batches are rounded up to them, counted up to the run.
  bool estimated = false;
  // The sampled batches, and the different shapes that they have before they are rounded up.
  int64_t sampled_batches = 0, sampled_shapes = 0;
  // All rungs that batches are rounded up to before they reach the cache, rising; empty: they come at their own shapes.
  std::vector<BatchShape> rungs;
  // The schedule is longer than this part of it, which was walked.
  bool cut = false;
  BatchShape ceiling;  // holds every training batch
  std::vector<BatchShape> eval_rungs;
  std::vector<ShapeCount> eval_schedule;  // as ShapeSchedule's
  // Distinct shapes of evaluation batches; and of those of the validation split, which is evaluated first.
  int64_t eval_shapes = 0, valid_shapes = 0;
};

// Returns the training batches by shape. For a schedule that was cut it adds the ceiling, and for an estimated one the
// rungs that no sampled batch came to, 0 times each.
std::vector<ShapeCount> CountsOf(const PlannedSchedule& schedule);
// Training batches of the schedule.
int64_t Batches(const PlannedSchedule& schedule);

// Seconds of a step as a function of its rows (nodes and edges).
struct StepTime {
  double fixed = 0, per_row = 0;
  double Of(double rows) const { return fixed + per_row * rows; }
};

// Measured on the device that is to run the job.
struct StepCosts {
  StepTime replay, eager;
  double padding_row = 0;  // what a padding row adds to a replay, seconds
  // Seconds to make one executable: for a training step or an evaluation step, for one shape or for every shape.
  double capture = 0, eval_capture = 0;
  double dynamic_capture = 0, dynamic_eval_capture = 0;
  // The bytes that one executable keeps for itself, and those that all share.
  int64_t entry_bytes = 0, eval_entry_bytes = 0;
  int64_t dynamic_entry_bytes = 0, dynamic_eval_entry_bytes = 0;
  int64_t shared_bytes = 0;
};

// The outcome of a policy on a schedule. Steps are training steps of the whole run.
struct PlanRow {
  spec::PolicyOptions options;
  spec::Shapes shapes = spec::Shapes::kExact;  // what it comes to: never kAuto
  int64_t schedule = 0;                        // index of CachePlan::schedules
  // The counts at the run's end.
  int64_t train_executables = 0, eval_executables = 0;
  int64_t captures = 0;  // of training steps
  // The steps that are replayed (`padded` of them into a larger shape), and those that run eager. The rest is captured.
  int64_t replayed = 0, padded = 0, eager = 0;
  int64_t real_rows = 0, padding_rows = 0;
  int64_t rejected = 0;  // steps whose shape fails the job (on_miss reject)
  // Set where costs were measured.
  std::optional<int64_t> bytes;
  std::optional<double> step_seconds;   // mean of a training step, captures apart
  std::optional<double> train_seconds;  // all training steps and captures
};

// Returns the outcome of `options`. `no_dynamic_reason`: why there are no dynamic executables; empty: there are.
// Without `pads` no batch is padded into a larger executable.
PlanRow PlanPolicy(const spec::PolicyOptions& options, const PlannedSchedule& schedule, int64_t freeze_at,
                   const std::string& no_dynamic_reason, const std::optional<StepCosts>& costs, bool pads = true);

struct CachePlan {
  spec::PolicyOptions options;  // the job's
  FreezePoint freeze_point;     // of #10689 for exact shapes
  std::string no_dynamic_reason;
  bool pads = true;                        // as GraphCacheSetup::pads
  std::vector<PlannedSchedule> schedules;  // the job's own batching first
  std::vector<PlanRow> rows;
  std::optional<StepCosts> costs;
  std::string no_costs_reason;  // one line: why nothing was measured
  int64_t recommended = 0;      // index of rows
  std::string reason;           // of the recommendation, one line
};

// Fills `rows`, `recommended` and `reason` from the rest: the job's own policy first, then the policies of #10689, one
// executable for every shape, and ladders of 1, 4, 8 and 16 rungs, on every schedule that they go with.
void FillRows(CachePlan& plan);

// Fills `recommended` and `reason` from the rows, of which there is one at least. It is the fastest of those that
// replay every step in the end or, where nothing was measured, the one that adds the fewest rows; among about equal
// ones the simplest. Where none replays every step: the first.
void Recommend(CachePlan& plan);

}  // namespace permafrost::graphcache
