// The lines that the job manager writes into a job's log. Numbers are aligned, so that the lines of epochs read as a
// table.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "jobs/job.h"

namespace permafrost::jobs {

std::string SubmittedLine(const Job& job);
// Returns the line for a job that the device has just taken.
std::string StartedLine(const Job& job, std::string_view device, int threads);
std::string EpochLine(const train::EpochMetrics& metrics, const spec::TrainOptions& options);
// Returns the line for a job that has ended.
std::string EndedLine(const Job& job);

}  // namespace permafrost::jobs
