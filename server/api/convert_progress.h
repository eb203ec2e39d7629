// Tells on the wire how far a job is, and what came of it.
// Threads: pure functions.
#pragma once

#include <vector>

#include "permafrost/v1/job.pb.h"
#include "spec/loss.h"
#include "train/runner.h"

namespace permafrost::api {

void ProgressToWire(const train::Progress& progress, v1::Progress& wire);

// `metrics`: what the job's evaluations report, in order (spec::MetricsOf).
void EpochToWire(const train::EpochMetrics& epoch, const std::vector<spec::Metric>& metrics, v1::EpochMetrics& wire);
void ResultToWire(const train::RunResult& result, const std::vector<spec::Metric>& metrics, v1::JobResult& wire);

}  // namespace permafrost::api
