// Shows what came of a sweep, for people and for programs.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/style.h"
#include "client/sweep_plan.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// Over the jobs that have a value: the mean and the population standard deviation.
struct Spread {
  int64_t jobs = 0;
  double mean = 0, deviation = 0;
};
Spread SpreadOf(const std::vector<double>& values);

// Jobs that differ in folds and seeds alone (IsRepetition).
struct SweepGroup {
  std::vector<std::string> values;  // of the other axes
  int64_t jobs = 0;                 // of it; those that succeeded are in the spreads
  // By the place of the metric in the job: of the best epoch, of the validation and of the test split.
  std::vector<Spread> valid, test;
};

// In the order of their first jobs. jobs: as PlanSweep gave their values.
std::vector<SweepGroup> GroupsOf(const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                                 const std::vector<v1::Job>& jobs);

// A row a job; and where some are repetitions of others a row a group below.
std::string RenderSweep(const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                        const std::vector<v1::Job>& jobs, const RenderStyle& style);

// The same as one line of JSON.
std::string SweepToJson(const std::string& id, const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                        const std::vector<v1::Job>& jobs);

}  // namespace permafrost::client
