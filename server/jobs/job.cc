#include "jobs/job.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/hash.h"
#include "base/string_view.h"

namespace permafrost::jobs {

bool CanMove(JobState from, JobState to) {
  switch (from) {
    case JobState::kQueued:
      return to == JobState::kRunning || to == JobState::kCancelled || to == JobState::kPaused;
    case JobState::kRunning:
      return to == JobState::kCancelling || to == JobState::kSucceeded || to == JobState::kFailed ||
             to == JobState::kQueued || to == JobState::kPaused;
    case JobState::kCancelling:
      return to == JobState::kCancelled || to == JobState::kSucceeded || to == JobState::kFailed;
    case JobState::kPaused:
      return to == JobState::kQueued || to == JobState::kCancelled;
    case JobState::kFailed:
    case JobState::kCancelled:
      return to == JobState::kQueued;
    case JobState::kSucceeded:
      return false;
  }
  return false;
}

std::string OneLine(absl::string_view message) { return absl::StrReplaceAll(message, {{"\n", " "}, {"\r", " "}}); }

bool IsLabelKey(std::string_view key) {
  constexpr size_t kMaxLength = 63;
  const auto may_follow = [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-';
  };
  return !key.empty() && key.size() <= kMaxLength && absl::ascii_islower(static_cast<unsigned char>(key[0])) &&
         std::ranges::all_of(key, may_follow);
}

void Validate(const Labels& labels, std::string_view field, Violations& violations) {
  constexpr size_t kMaxValueLength = 63;
  if (labels.size() > kMaxLabels) {
    violations.Add(field, absl::StrCat("are ", labels.size(), "; accepted: at most ", kMaxLabels));
  }
  for (const auto& [key, value] : labels) {
    const std::string name = absl::StrCat(AbslView(field), ".", absl::CHexEscape(key.substr(0, kMaxValueLength)));
    if (!IsLabelKey(key)) {
      violations.Add(name, "is no key; accepted: [a-z][a-z0-9_-]{0,62}");
    } else if (value.size() > kMaxValueLength ||
               !std::ranges::all_of(value, [](unsigned char c) { return absl::ascii_isprint(c); })) {
      violations.Add(
          name, absl::StrCat("\"", absl::CHexEscape(value.substr(0, kMaxValueLength)),
                             "\" is no value; accepted: at most ", kMaxValueLength, " printable ASCII characters"));
    }
  }
}

std::string EtagOf(const Job& job) {
  std::string text = absl::StrCat("job-1 ", job.id.value(), " ", job.spec.priority);
  // No key holds a blank, and no value a line's end.
  for (const auto& [key, value] : job.labels) absl::StrAppend(&text, "\n", key, " ", value);
  return HashHex(Hash64(text));
}

void Validate(const JobSpec& spec, Violations& violations) {
  train::Validate(spec.train, "spec.", violations);
  ValidatePriority(spec.priority, "spec.priority", violations);
}

void ValidatePriority(int32_t priority, std::string_view field, Violations& violations) {
  if (priority < -100 || priority > 100) violations.Add(field, absl::StrCat(priority, " is outside -100..100"));
}

}  // namespace permafrost::jobs
