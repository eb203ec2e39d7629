// Plans a job's graph cache before the job is made: measures for the plan what steps and captures take on the device,
// and counts for a census the graphs that MPS would compile. Threads: the device thread where it measures, else any.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "device/backend.h"
#include "graphcache/cache_plan.h"
#include "graphcache/census.h"
#include "train/planning/job_schedule.h"
#include "train/runner.h"

namespace permafrost::train {

// Does what Runner::PlanCache says, except for checking the options.
absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request, const device::Backend& backend, int threads,
                                                const PlanContext& context, const std::function<bool()>& keep_going);

// Takes the census of a job (graphcache/census.h): its steps are recorded on device mps, real or the stand-in's, and
// their keys counted over its schedule. Any thread may take it where the stand-in serves (device/mps/stand_in.h), else
// the device's. As Runner::TakeCensus, but for the check of the options and what was measured.
absl::StatusOr<graphcache::Census> TakeCensus(const CensusRequest& request, int threads, const PlanContext& context,
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
