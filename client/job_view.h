// Text about jobs, for people.
// Threads: everything here is pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/progress.h"
#include "client/style.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

struct ViewTime {
  static ViewTime Now() { return {absl::Now(), absl::LocalTimeZone()}; }

  absl::Time now;
  absl::TimeZone zone;
};

// Returns, for example, "2026-01-31 13:22:10 (3m ago)".
std::string WhenText(const google::protobuf::Timestamp& wire, const ViewTime& time);

bool IsTerminal(v1::Job::State state);
bool IsOnDevice(v1::Job::State state);
// Returns the machine-readable reason of the job's failure, such as "OUT_OF_MEMORY". Empty if the job did not fail,
// or the server gives no reason.
std::string ErrorReason(const v1::Job& job);
// Returns, for example, "running".
std::string StateName(v1::Job::State state);
Cell StateCell(v1::Job::State state);
// Returns, for example, "3/20", or "-/20" before the first epoch.
std::string EpochText(const v1::Job& job);

// Returns the name of the metric that the job's evaluation reports: "MAE", "accuracy", "ROC-AUC".
std::string MetricName(const v1::Job& job);
std::string MetricName(v1::Metric metric);
// Returns whether the job trains on the nodes of one large graph.
bool IsNodeLevel(const v1::Job& job);

// `valid_metric` is the validation metric of the last finished epoch. It is an argument because the messages about a
// watched job contain it only once.
JobSnapshot ToSnapshot(const v1::Job& job, std::optional<double> valid_metric);
EpochTable EpochTableOf(const v1::Job& job);
EpochRow ToEpochRow(const v1::EpochMetrics& epoch);

// Makes one row per job.
std::string RenderJobList(const std::vector<v1::Job>& jobs, const ViewTime& time, const RenderStyle& style);
// Shows everything about one job, including its epochs and result.
std::string RenderJob(const v1::Job& job, const ViewTime& time, const RenderStyle& style);
// Makes one row per checkpoint.
std::string RenderCheckpoints(const std::vector<v1::Checkpoint>& checkpoints, const ViewTime& time,
                              const RenderStyle& style);
// Makes the table at the end of a successful job.
std::string RenderResult(const v1::Job& job, const RenderStyle& style);

}  // namespace permafrost::client
