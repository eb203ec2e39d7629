// The jobs of a sweep (one description with some fields varied) and their results.
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
  std::vector<std::string> values;  // one value per axis
  v1::JobSpec spec;
};

// Parses "NAME=VALUE,VALUE,..." for jobs of `base`. The value "2..5" stands for 2, 3, 4, 5. Errors: InvalidArgument
// for an unknown field, missing or equal values, values that the field cannot hold, and more than 10,000 values.
absl::StatusOr<SweepAxis> ParseAxis(const std::string& text, const v1::JobSpec& base = v1::JobSpec());

// Makes a job for every combination of the axes' values; the last axis changes fastest. With `side_by_side`, the
// first job has the first value of every axis, the second job has the second values, and so on. Errors:
// InvalidArgument for more than `most` jobs, an axis that is given twice, and axes of different lengths side by side.
// InvalidArgument also for an axis `negatives` that would mean different fields for different models.
absl::StatusOr<std::vector<SweepJob>> PlanSweep(const v1::JobSpec& base, const std::vector<SweepAxis>& axes,
                                                bool side_by_side, int64_t most);

// Returns whether jobs that differ only in this field repeat one experiment, so that their results are averaged.
bool IsRepetition(const SpecPath& path);

// The mean and the population standard deviation over the jobs that have a value.
struct Spread {
  int64_t jobs = 0;
  double mean = 0, deviation = 0;
};
Spread SpreadOf(const std::vector<double>& values);

// Jobs that differ only in folds and seeds (IsRepetition).
struct SweepGroup {
  std::vector<std::string> values;  // one value for each of the other axes
  int64_t jobs = 0;                 // all jobs of the group; the spreads cover the jobs with a result
  // The spread of each metric in the best epoch, on the validation and the test split. The metrics are in the job's
  // order.
  std::vector<Spread> valid, test;
};

// Returns the groups in the order of their first jobs. `jobs` must be in the order of `plan`.
std::vector<SweepGroup> GroupsOf(const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                                 const std::vector<v1::Job>& jobs);

// Makes one row per job. If some jobs repeat an experiment, a second table has one row per group. `servers` has each
// job's server, and is empty without --on.
std::string RenderSweep(const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                        const std::vector<v1::Job>& jobs, const std::vector<std::string>& servers,
                        const RenderStyle& style);

// Returns one line of JSON with the results that RenderSweep shows, and with the warnings that the user got.
std::string SweepToJson(const std::string& id, const std::vector<SweepAxis>& axes, const std::vector<SweepJob>& plan,
                        const std::vector<v1::Job>& jobs, const std::vector<std::string>& servers,
                        const std::vector<std::string>& warnings);

}  // namespace permafrost::client
