// The flags of `job submit` that describe a job. `job sweep`, `cache plan` and `cache census` take them too.
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
  SpecFlags spec{JobRows()};  // these flags override the job file
};

void AddJobFlags(CLI::App& command, JobFlags& flags);

// Adds the collection to the names of resources in the spec: the dataset "zinc" becomes "datasets/zinc".
void CompleteNames(v1::JobSpec& spec);

// Says whether the file and the flags must name the dataset (kHere), or whether it is set later (kLater).
enum class DatasetNeed { kHere, kLater };

// Reads the job that the file and the flags describe. On failure it prints the reason, sets `exit` to the program's
// exit code, and returns false.
bool ReadJob(const JobFlags& flags, Session& session, v1::CreateJobRequest& request, ExitCode& exit,
             DatasetNeed dataset = DatasetNeed::kHere);

// Names the subject of a plan, such as "zinc, batches of 32".
std::string SubjectOf(const v1::JobSpec& spec);

// Adds --label KEY=VALUE, which may be given several times.
void AddLabelOption(CLI::App& command, std::vector<std::string>& labels, const std::string& help);
// Adds the values of the option to `labels`. Errors: InvalidArgument for a text that is not KEY=VALUE, and for a key
// that is given twice. The server checks the keys and values themselves.
absl::Status ReadLabels(const std::vector<std::string>& texts, WireLabels& labels);

}  // namespace permafrost::client
