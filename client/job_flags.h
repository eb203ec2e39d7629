// The flags that describe a job: those of `job submit`, which `job sweep`, `cache plan` and `cache census` take too.
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "client/format.h"
#include "client/session.h"
#include "client/spec_rows.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

struct JobFlags {
  std::string file;
  SpecFlags spec{JobRows()};  // they override the file
};

void AddJobFlags(CLI::App& command, JobFlags& flags);

// Gives names of resources their collection: the dataset "zinc" becomes "datasets/zinc".
void CompleteNames(v1::JobSpec& spec);

// Tells whether the file and the flags must name the dataset, or it comes later.
enum class DatasetNeed { kHere, kLater };

// The job that the file and the flags describe. Returns false after it printed the reason; `exit` is then the program's
// exit code.
bool ReadJob(const JobFlags& flags, Session& session, v1::CreateJobRequest& request, ExitCode& exit,
             DatasetNeed dataset = DatasetNeed::kHere);

// "zinc, batches of 32": what a plan is of.
std::string SubjectOf(const v1::JobSpec& spec);

// --label KEY=VALUE, several times.
void AddLabelOption(CLI::App& command, std::vector<std::string>& labels, const std::string& help);
// Adds what the option was given. Errors: InvalidArgument for what is not KEY=VALUE and for a key that stands twice;
// what a key or value may be is the server's to say.
absl::Status ReadLabels(const std::vector<std::string>& texts, WireLabels& labels);

}  // namespace permafrost::client
