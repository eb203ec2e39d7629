// Jobs as people read them.
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

// "2026-01-31 13:22:10 (3m ago)".
std::string WhenText(const google::protobuf::Timestamp& wire, const ViewTime& time);

bool IsTerminal(v1::Job::State state);
bool IsOnDevice(v1::Job::State state);
// Why it failed, as programs know it: "OUT_OF_MEMORY". Empty: it did not fail, or the server does not say.
std::string ErrorReason(const v1::Job& job);
// "running".
std::string StateName(v1::Job::State state);
Cell StateCell(v1::Job::State state);
// "3/20"; "-/20" before the first epoch.
std::string EpochText(const v1::Job& job);

// Returns what its evaluation reports: "MAE", "accuracy", "ROC-AUC".
std::string MetricName(const v1::Job& job);
std::string MetricName(v1::Metric metric);
// Returns whether it trains on the nodes of one large graph.
bool IsNodeLevel(const v1::Job& job);

// `valid_metric`: of the last finished epoch, which a watched job's later messages do not repeat.
JobSnapshot ToSnapshot(const v1::Job& job, std::optional<double> valid_metric);
EpochTable EpochTableOf(const v1::Job& job);
EpochRow ToEpochRow(const v1::EpochMetrics& epoch);

// One row a job.
std::string RenderJobList(const std::vector<v1::Job>& jobs, const ViewTime& time, const RenderStyle& style);
// Everything about one job, its epochs and result included.
std::string RenderJob(const v1::Job& job, const ViewTime& time, const RenderStyle& style);
// One row a checkpoint.
std::string RenderCheckpoints(const std::vector<v1::Checkpoint>& checkpoints, const ViewTime& time,
                              const RenderStyle& style);
// The table that a successful job ends with.
std::string RenderResult(const v1::Job& job, const RenderStyle& style);

}  // namespace permafrost::client
