// The lines that the job manager writes into a job's log. Numbers are aligned so that epochs read as a table.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "jobs/job.h"

namespace permafrost::jobs {

std::string SubmittedLine(const Job& job);
// The line for a job that has just moved to running.
std::string StartedLine(const Job& job, std::string_view device, int threads);
std::string EpochLine(const train::EpochMetrics& metrics, const spec::TrainOptions& options);
// The line for a job in a terminal state.
std::string EndedLine(const Job& job);

}  // namespace permafrost::jobs
