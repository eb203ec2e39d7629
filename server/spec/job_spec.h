// A job as its owner describes it. Threads: plain values.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "spec/field.h"
#include "spec/train_options.h"

namespace permafrost::spec {

// Limits on the time that a job may take (jobs/job.h).
struct JobLimits {
  absl::Duration max_runtime = absl::InfiniteDuration();  // the most time on the device, summed over all runs
  absl::Time deadline = absl::InfiniteFuture();
  bool operator==(const JobLimits&) const = default;
};

template <class F>
void VisitFields(Options<JobLimits>, F&& f) {
  f({.name = "max_runtime",
     .flag = "--max-runtime",
     .help = "Most time on the device, all runs together, as 45m, 1h30m or 2d; then the job fails, after a checkpoint "
             "(default: no limit)",
     .value = "DURATION"},
    &JobLimits::max_runtime);
  f({.name = "deadline",
     .flag = "--deadline",
     .help = "When the job is to have ended, as 2026-01-31T13:00:00Z, or as 12h from now; else it fails, after a "
             "checkpoint (default: none)",
     .value = "TIME"},
    &JobLimits::deadline);
}

struct JobSpec {
  TrainOptions train;
  int32_t priority = 0;  // -100..100; higher runs first
  JobLimits limits;
  // The most retries in a row after errors of the machine. 0: no limit.
  int32_t max_retries = 0;
  bool operator==(const JobSpec&) const = default;
};

template <class F>
void VisitFields(Options<JobSpec>, F&& f) {
  f({.name = "train", .inlined = Inline::kAlways}, &JobSpec::train);
  f({.name = "priority",
     .accepts = Between(-100, 100),
     .flag = "--priority",
     .help = "Higher runs first, and takes the device from a lower one, -100..100 ({})"},
    &JobSpec::priority);
  f({.name = "limits", .inlined = Inline::kAlways}, &JobSpec::limits);
  f({.name = "max_retries",
     .accepts = Between(0, 1'000'000),
     .flag = "--max-retries",
     .help = "Runs in a row, after the first, that errors of the machine may end; 0: no limit ({})"},
    &JobSpec::max_retries);
}

// Adds a violation for each bad field. Fields are named as on the wire ("spec.epochs").
void Validate(const JobSpec& spec, Violations& violations);
// The next two functions check the fields that UpdateJob can change. Fields are named after `prefix` ("job.spec.").
void ValidatePriority(int32_t priority, std::string_view prefix, Violations& violations);
void Validate(const JobLimits& limits, std::string_view prefix, Violations& violations);

}  // namespace permafrost::spec
