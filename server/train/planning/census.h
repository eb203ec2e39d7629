// The census of a job (graphcache/census.h): its steps are recorded on device mps, real or the stand-in's, and their
// keys counted over its schedule. Threads: any where the stand-in serves (device/mps/stand_in.h), else the device's.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "graphcache/census.h"
#include "train/planning/job_schedule.h"
#include "train/runner.h"

namespace permafrost::train {

// As Runner::TakeCensus, but for the check of the options and what was measured.
absl::StatusOr<graphcache::Census> TakeCensus(const CensusRequest& request, int threads, const PlanContext& context,
                                              const std::function<bool()>& keep_going);

}  // namespace permafrost::train
