#include "daemon/job_settings.h"

#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace permafrost {
namespace {

constexpr char kKeepAll[] = "all";

// A number of days, which Abseil knows nothing of, or what Abseil takes.
std::optional<absl::Duration> ParseAge(const std::string& value) {
  absl::string_view days(value);
  double count = 0;
  absl::Duration age;
  if (!days.empty() && days.back() == 'd' && absl::SimpleAtod(days.substr(0, days.size() - 1), &count)) {
    age = count * absl::Hours(24);
  } else if (!absl::ParseDuration(value, &age)) {
    return std::nullopt;
  }
  return age >= absl::Seconds(1) && age < absl::InfiniteDuration() ? std::optional(age) : std::nullopt;
}

absl::Status ReadKeepFinished(const std::string& value, Options& out) {
  if (value == kKeepAll) return absl::OkStatus();
  int64_t count = 0;
  if (absl::SimpleAtoi(value, &count) && count >= 0) {
    out.keep_finished.count = count;
    return absl::OkStatus();
  }
  if (const auto age = ParseAge(value)) {
    out.keep_finished.age = *age;
    return absl::OkStatus();
  }
  return Refuse(value, "all, a number of jobs, or an age of at least 1s, such as 12h or 30d");
}

std::string ShowKeepFinished(const Options& options) {
  const jobs::KeepFinished& keep = options.keep_finished;
  if (keep.keeps_all()) return kKeepAll;
  return keep.count ? absl::StrCat(*keep.count) : absl::FormatDuration(keep.age);
}

}  // namespace

void AddJobSettings(std::vector<Setting>& settings) {
  settings.push_back({.name = "no-preemption",
                      .metavar = "",
                      .help = "A job of higher priority waits for the end of the one on the device. Otherwise it\n"
                              "takes the device at the next step, after a checkpoint.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadBool(v, o.no_preemption); },
                      .show = [](const Options& o) { return ShowBool(o.no_preemption); }});
  settings.push_back({.name = "keep-finished-jobs",
                      .metavar = "HOW-MANY",
                      .help = "Jobs that have ended and are kept: all, the last N that ended, or those that ended\n"
                              "less long ago than an age, such as 30d. Others are deleted, with their files.",
                      .is_list = false,
                      .read = ReadKeepFinished,
                      .show = ShowKeepFinished});
  settings.push_back({.name = "max-job-log",
                      .metavar = "SIZE",
                      .help = "Most bytes that are kept of a job's log, 64KiB or more; of a longer one the newest\n"
                              "half of that or more. 0: all.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) -> absl::Status {
                        if (absl::Status read = ReadSize(v, o.max_job_log_bytes); !read.ok()) return read;
                        constexpr uint64_t kLeast = 64 << 10;
                        if (o.max_job_log_bytes == 0 || o.max_job_log_bytes >= kLeast) return absl::OkStatus();
                        return Refuse(v, "0, or 64KiB and more");
                      },
                      .show = [](const Options& o) { return absl::StrCat(o.max_job_log_bytes); }});
}

}  // namespace permafrost
