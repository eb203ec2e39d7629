#include "spec/job_spec.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "spec/checks.h"

namespace permafrost::spec {
namespace {

// Checks what a job has beside its training.
void CheckRows(const JobSpec& beside, std::string_view prefix, Violations& violations) {
  FieldChecker check(prefix, violations);
  RowCheck(check, nullptr).Visit(beside, beside);
}

}  // namespace

void Validate(const JobSpec& spec, Violations& violations) {
  constexpr std::string_view kPrefix = "spec.";
  Validate(spec.train, kPrefix, violations);
  Validate(spec.limits, kPrefix, violations);
  JobSpec beside = spec;
  beside.train = TrainOptions();
  CheckRows(beside, kPrefix, violations);
}

void ValidatePriority(int32_t priority, std::string_view prefix, Violations& violations) {
  JobSpec beside;
  beside.priority = priority;
  CheckRows(beside, prefix, violations);
}

void Validate(const JobLimits& limits, std::string_view prefix, Violations& violations) {
  if (limits.max_runtime > absl::ZeroDuration()) return;
  violations.Add(absl::StrCat(AbslView(prefix), "max_runtime"),
                 absl::StrCat(absl::FormatDuration(limits.max_runtime), " is not above 0"));
}

}  // namespace permafrost::spec
