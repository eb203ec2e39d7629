#include "jobs/job.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace permafrost::jobs {

bool CanMove(JobState from, JobState to) {
  switch (from) {
    case JobState::kQueued:
      return to == JobState::kRunning || to == JobState::kCancelled;
    case JobState::kRunning:
      return to == JobState::kCancelling || to == JobState::kSucceeded || to == JobState::kFailed ||
             to == JobState::kQueued;
    case JobState::kCancelling:
      return to == JobState::kCancelled || to == JobState::kSucceeded || to == JobState::kFailed;
    case JobState::kSucceeded:
    case JobState::kFailed:
    case JobState::kCancelled:
      return false;
  }
  return false;
}

std::string OneLine(absl::string_view message) { return absl::StrReplaceAll(message, {{"\n", " "}, {"\r", " "}}); }

void Validate(const JobSpec& spec, Violations& violations) {
  train::Validate(spec.train, "spec.", violations);
  if (spec.priority < -100 || spec.priority > 100) {
    violations.Add("spec.priority", absl::StrCat(spec.priority, " is outside -100..100"));
  }
}

}  // namespace permafrost::jobs
