#include "jobs/job.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::jobs {
namespace {

// Returns the reason for an error that has no reason of its own.
std::string_view ReasonOfCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kResourceExhausted:
      return "OUT_OF_MEMORY";
    case absl::StatusCode::kDataLoss:
      return "DATA_DAMAGED";
    case absl::StatusCode::kInvalidArgument:
      return "BAD_DATA";
    default:
      return "RUN_FAILED";
  }
}

std::string UtcText(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()); }

}  // namespace

std::string OneLine(absl::string_view message) { return absl::StrReplaceAll(message, {{"\n", " "}, {"\r", " "}}); }

void Move(Job& job, JobState state, std::string_view reason, const std::string& message) {
  job.state = state;
  job.history.Add({state, absl::Now(), std::string(reason), OneLine(message)});
}

void MoveToFailed(Job& job, const absl::Status& error) {
  ErrorReason reason = GetReason(error);
  if (reason.reason.empty()) reason.reason = ReasonOfCode(error.code());
  job.error = OneLine(error.message());
  job.failure = {error.code(), reason.reason, std::move(reason.metadata)};
  job.pausing = false;
  Move(job, JobState::kFailed, job.failure.reason, job.error);
}

absl::Status ErrorOf(const Job& job) {
  if (job.state != JobState::kFailed) return absl::OkStatus();
  if (job.failure.code == absl::StatusCode::kOk) return absl::UnknownError(job.error);
  return WithReason(absl::Status(job.failure.code, job.error), job.failure.reason, job.failure.metadata);
}

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
  if (job.spec.limits != spec::JobLimits()) {
    absl::StrAppend(&text, " ", absl::FormatDuration(job.spec.limits.max_runtime), " ",
                    absl::FormatTime(absl::RFC3339_full, job.spec.limits.deadline, absl::UTCTimeZone()));
  }
  // The text is unambiguous: keys hold no blanks, and values hold no line breaks.
  for (const auto& [key, value] : job.labels) absl::StrAppend(&text, "\n", key, " ", value);
  return HashHex(Hash64(text));
}

JobId MakeJobId(absl::Time time) {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::uniform_int_distribution<size_t> letter(0, sizeof(kLetters) - 2);
  std::string end;
  for (int i = 0; i < 6; ++i) end += kLetters[letter(random)];
  return JobId(absl::StrCat("job-", absl::FormatTime("%Y%m%d-%H%M%S", time, absl::UTCTimeZone()), "-", end));
}

namespace {

// Returns true for the states to which a job may move from any state of a run.
bool CanLeaveDevice(JobState to) {
  return to == JobState::kCancelling || to == JobState::kSucceeded || to == JobState::kFailed ||
         to == JobState::kQueued || to == JobState::kPaused;
}

}  // namespace

bool CanMove(JobState from, JobState to) {
  switch (from) {
    case JobState::kQueued:
      return to == JobState::kPreparing || to == JobState::kRecovering || to == JobState::kPaused ||
             to == JobState::kCancelled || to == JobState::kFailed;
    case JobState::kPreparing:
      return to == JobState::kWarmingUp || to == JobState::kRunning || CanLeaveDevice(to);
    case JobState::kWarmingUp:
    case JobState::kRecovering:
      return to == JobState::kRunning || CanLeaveDevice(to);
    case JobState::kRunning:
      return CanLeaveDevice(to);
    case JobState::kCancelling:
      return to == JobState::kCancelled || to == JobState::kSucceeded || to == JobState::kFailed;
    case JobState::kPaused:
      return to == JobState::kQueued || to == JobState::kCancelled || to == JobState::kFailed;
    case JobState::kFailed:
    case JobState::kCancelled:
      return to == JobState::kQueued;
    case JobState::kSucceeded:
      return false;
  }
  return false;
}

void StateHistory::Add(StateChange change) {
  changes.push_back(std::move(change));
  if (changes.size() <= kMax) return;
  changes.erase(changes.begin());
  ++dropped;
}

Limit PassedLimit(const spec::JobLimits& limits, absl::Duration device_time, absl::Time now) {
  if (device_time >= limits.max_runtime) return Limit::kMaxRuntime;
  return now >= limits.deadline ? Limit::kDeadline : Limit::kNone;
}

void ValidateDeadline(absl::Time deadline, std::string_view field, Violations& violations) {
  const absl::Time now = absl::Now();
  if (deadline > now) return;
  violations.Add(field, absl::StrCat(UtcText(deadline), " has passed; accepted: later than ", UtcText(now)));
}

absl::Status LimitError(Limit limit, const spec::JobLimits& limits) {
  if (limit == Limit::kMaxRuntime) {
    return WithReason(absl::DeadlineExceededError(absl::StrCat("it was on the device for its max_runtime of ",
                                                               absl::FormatDuration(limits.max_runtime),
                                                               "; with a larger one it can be retried")),
                      "MAX_RUNTIME");
  }
  return WithReason(absl::DeadlineExceededError(absl::StrCat("its deadline of ", UtcText(limits.deadline),
                                                             " has passed; with a later one it can be retried")),
                    "DEADLINE_EXCEEDED");
}

}  // namespace permafrost::jobs
