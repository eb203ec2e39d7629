// The jobs of a sweep, which are one description and the fields that differ, and what came of them.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/message_fields.h"
#include "client/style.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

struct SweepAxis {
  std::string name;  // as the user wrote it
  SpecPath path;
  std::vector<std::string> values;
};

struct SweepJob {
  std::vector<std::string> values;  // of each axis
  v1::JobSpec spec;
};

// Reads what "NAME=VALUE,VALUE,..." means for jobs of `base`; a value "2..5" stands for 2, 3, 4, 5. Errors:
// InvalidArgument for no field, no or equal values, values that the field cannot hold, more than 10,000.
absl::StatusOr<SweepAxis> ParseAxis(const std::string& text, const v1::JobSpec& base = v1::JobSpec());

// Every combination of the axes' values, the last axis changing first; side_by_side: the first values of all, then the
// second ones. Errors: InvalidArgument for more than `most` jobs, an axis that stands twice, axes of different lengths
// side by side, and `negatives` where it would be one field to some of the models and another one to others.
absl::StatusOr<std::vector<SweepJob>> PlanSweep(const v1::JobSpec& base, const std::vector<SweepAxis>& axes,
                                                bool side_by_side, int64_t most);

// Returns whether jobs that differ in this field alone are repetitions of one: their results are averaged.
bool IsRepetition(const SpecPath& path);

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
  // Spreads of each metric, in the job's order, in the best epoch: on the validation and on the test split.
  std::vector<Spread> valid, test;
};

// In the order of their first jobs. jobs: as PlanSweep gave their values.
std::vector<SweepGroup> GroupsOf(const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                                 const std::vector<v1::Job>& jobs);

// One row for each job, and below, where some repeat others, one for each group. servers: each job's server; empty
// without --on.
std::string RenderSweep(const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                        const std::vector<v1::Job>& jobs, const std::vector<std::string>& servers,
                        const RenderStyle& style);

// The same as one line of JSON, with what the user was warned of.
std::string SweepToJson(const std::string& id, const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                        const std::vector<v1::Job>& jobs, const std::vector<std::string>& servers,
                        const std::vector<std::string>& warnings);

}  // namespace permafrost::client
