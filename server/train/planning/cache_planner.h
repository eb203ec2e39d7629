// Plans a job's graph cache before the job is made, and measures for the plan what steps and captures take on the
// device. Threads: the device thread where it measures, else any.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/backend.h"
#include "graphcache/cache_plan.h"
#include "spec/train_options.h"
#include "train/planning/job_schedule.h"
#include "train/runner.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// Nothing but the schedules of a plan and what follows from them: no rows, no costs.
absl::StatusOr<graphcache::CachePlan> PlanOf(const spec::TrainOptions& options, Task& task,
                                             std::string no_dynamic_reason, const std::function<bool()>& keep_going);

// Does what Runner::PlanCache says, except for checking the options.
absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request, const device::Backend& backend, int threads,
                                                const PlanContext& context, const std::function<bool()>& keep_going);

struct MeasuredCosts {
  graphcache::StepCosts costs;
  std::string no_dynamic_reason;  // found while the step was captured; empty: it is dynamic, or was known not to be
};

// Runs steps of `task`, whose weights change, at the shapes of `schedule`: a few captures and some replays of a typical
// batch and of the largest. Errors: FailedPrecondition with graphcache::kGraphBreakReason for a step that cannot be
// captured; Cancelled where `keep_going`, asked between two measurements, says so.
absl::StatusOr<MeasuredCosts> MeasureCosts(const spec::TrainOptions& options, Task& task,
                                           const device::Backend& backend, const graphcache::PlannedSchedule& schedule,
                                           const std::function<bool()>& keep_going);

// Runs once, and says how many seconds it took.
using TimedRun = std::function<absl::StatusOr<double>()>;

// The seconds of some runs that are to be compared, by run and round. They are taken in turns: what slows the machine
// meanwhile slows them all.
class Turns {
 public:
  explicit Turns(size_t runs) : seconds_(runs) {}

  // Runs all of `runs` once in each round; there must be as many as were announced. Every second round, counted over
  // all calls, goes in reverse order. Makes one round, and more until the runs of this call took `seconds` together.
  // Errors: those of a run.
  absl::Status Add(std::span<const TimedRun> runs, double seconds);
  // The median of the run's seconds; for an even number of them the lower one in the middle. After Add.
  double Median(size_t run) const;

 private:
  size_t rounds_ = 0;
  std::vector<std::vector<double>> seconds_;
};

}  // namespace permafrost::train
