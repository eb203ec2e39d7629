// The flags that describe a job: those of `job submit`, which `job sweep`, `cache plan` and `cache census` take too.
// Threads: one.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "client/session.h"
#include "client/spec_flags.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

struct JobFlags {
  std::string file;
  SpecFlags spec{JobRows()};  // they override the file
};

void AddJobFlags(CLI::App& command, JobFlags& flags);

// Tells whether the file and the flags must name the dataset, or it comes later.
enum class DatasetNeed { kHere, kLater };

// The job that the file and the flags describe. False where there is none, and why was printed: `exit` is then the
// program's.
bool ReadJob(const JobFlags& flags, Session& session, v1::CreateJobRequest& request, ExitCode& exit,
             DatasetNeed dataset = DatasetNeed::kHere);

// "zinc, batches of 32": what a plan is of.
std::string SubjectOf(const v1::JobSpec& spec);

}  // namespace permafrost::client
