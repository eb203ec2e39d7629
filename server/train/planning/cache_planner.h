// Plans a job's graph cache before the job is made. A plan compares cache policies, and may measure steps and
// captures on the device. A census counts the graphs that MPS would compile.
// Threads: the device thread for a plan that measures, otherwise any.
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

// Same as Runner::PlanCache, except that the options are not checked.
absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request, const device::Backend& backend, int threads,
                                                const PlanContext& context, const std::function<bool()>& keep_going);

// Takes the census of a job (graphcache/census.h). Records the job's steps on the device mps or on its stand-in, and
// counts the keys of their calls over the job's schedule. Same as Runner::TakeCensus, except that options are not
// checked and nothing is measured. Threads: any if the stand-in serves (device/mps/stand_in.h), otherwise the device
// thread.
absl::StatusOr<graphcache::Census> TakeCensus(const CensusRequest& request, int threads, const PlanContext& context,
                                              const std::function<bool()>& keep_going);

// Runs something once, and returns the seconds that it took.
using TimedRun = std::function<absl::StatusOr<double>()>;

// Times several runs for a comparison, in rounds. The runs take turns, so that a disturbance of the machine slows all
// of them.
class Turns {
 public:
  explicit Turns(size_t runs) : seconds_(runs) {}

  // Runs each of `runs` once in every round. `runs` must have as many elements as the constructor was told. Rounds
  // alternate between forward and reverse order, also from one call to the next. Makes at least one round, and
  // further rounds until the runs of this call have taken `seconds` in total. Errors: those of a run.
  absl::Status Add(std::span<const TimedRun> runs, double seconds);
  // Returns the median of the run's seconds: with an even number of rounds, the lower of the two middle values. Call
  // it after Add.
  double Median(size_t run) const;

 private:
  size_t rounds_ = 0;
  std::vector<std::vector<double>> seconds_;
};

}  // namespace permafrost::train
