#include "daemon/settings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/host_port.h"
#include "base/status.h"
#include "daemon/options.h"
#include "telemetry/log.h"

namespace permafrost {

absl::Status Refuse(const std::string& value, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\": accepted: ", accepted));
}

absl::Status ReadAddress(const std::string& value, std::string& out) {
  PF_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(value));
  out = FormatHostPort(parsed);
  return absl::OkStatus();
}

absl::Status ReadDirectory(const std::string& value, std::filesystem::path& out) {
  out = value;
  return value.empty() ? Refuse(value, "a directory") : absl::OkStatus();
}

absl::Status ReadFilePath(const std::string& value, std::filesystem::path& out) {
  out = value;
  return value.empty() ? Refuse(value, "a file") : absl::OkStatus();
}

absl::Status ReadBool(const std::string& value, bool& out) {
  return absl::SimpleAtob(value, &out) ? absl::OkStatus() : Refuse(value, "true or false");
}

std::string ShowBool(bool value) { return value ? "true" : "false"; }

absl::Status ReadPart(const std::string& value, double most, double& out) {
  // Written so that NaN fails.
  const bool ok = absl::SimpleAtod(value, &out) && out >= 0 && out <= most;
  return ok ? absl::OkStatus() : Refuse(value, absl::StrCat("0 to ", most));
}

// 500000000, 500MB, 1.5GiB.
absl::Status ReadSize(const std::string& value, uint64_t& out) {
  constexpr std::string_view kUnits = "kKMGT";
  constexpr double kMostBytes = 1e15;
  absl::string_view number = value;
  double factor = 1;
  if (absl::EndsWith(number, "B")) number.remove_suffix(1);
  const bool binary = absl::EndsWith(number, "i");
  if (binary) number.remove_suffix(1);
  if (const size_t unit = number.empty() ? std::string_view::npos : kUnits.find(number.back());
      unit != std::string_view::npos) {
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(std::max<size_t>(unit, 1)));
    number.remove_suffix(1);
  }
  double size = -1;
  // Written so that NaN fails.
  const bool has_unit = !binary || factor != 1;
  const bool ok = has_unit && absl::SimpleAtod(number, &size) && size >= 0 && size * factor <= kMostBytes;
  if (!ok) return Refuse(value, "bytes up to 1000TB, as 500000000, 500MB or 1.5GiB");
  out = static_cast<uint64_t>(size * factor);
  return absl::OkStatus();
}

absl::Status ReadSeconds(const std::string& value, double most, absl::Duration& out) {
  double seconds = -1;
  // Written so that NaN fails.
  const bool ok = absl::SimpleAtod(value, &seconds) && seconds >= 0 && seconds <= most;
  if (!ok) return Refuse(value, absl::StrCat("seconds, 0 to ", most));
  out = absl::Seconds(seconds);
  return absl::OkStatus();
}

namespace {

constexpr double kMaxExitSeconds = 86'400;
constexpr double kMaxWatchdogSeconds = 86'400;
constexpr char kNoBackups[] = "none";

absl::Status ReadBackupRoot(const std::string& value, Options& out) {
  out.backup_root.clear();
  return value == kNoBackups ? absl::OkStatus() : ReadDirectory(value, out.backup_root);
}

}  // namespace

void AddCareSettings(std::vector<Setting>& settings) {
  settings.push_back(
      {.name = "backup-root",
       .metavar = "DIR",
       .help = "Directory that `permafrost server backup` writes below, outside of --state-dir and of\n"
               "every --import-root. none: no backups.",
       .is_list = false,
       .read = ReadBackupRoot,
       .show = [](const Options& o) { return o.backup_root.empty() ? kNoBackups : o.backup_root.string(); }});
  settings.push_back(
      {.name = "exit-timeout",
       .metavar = "SECONDS",
       .help = "From being told to stop to the process's end, all in all. Where the running job's\n"
               "checkpoint takes longer, its work since the last one is lost and the exit code is 1.\n"
               "0: no limit.",
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadSeconds(v, kMaxExitSeconds, o.exit_timeout); },
       .show = [](const Options& o) { return absl::StrCat(absl::ToDoubleSeconds(o.exit_timeout)); },
       .reloads = true});
  settings.push_back(
      {.name = "watchdog",
       .metavar = "SECONDS",
       .help = "How long the device thread may go without a sign of progress (a step, a capture, a\n"
               "part of a plan or an evaluation, a checkpoint) before health turns NOT_SERVING.\n"
               "0: for ever.",
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadSeconds(v, kMaxWatchdogSeconds, o.watchdog); },
       .show = [](const Options& o) { return absl::StrCat(absl::ToDoubleSeconds(o.watchdog)); }});
}

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

namespace {

constexpr int64_t kMostJobs = 1'000'000;
constexpr int64_t kMostConnections = 1'000'000;

}  // namespace

void AddLimitSettings(std::vector<Setting>& settings) {
  settings.push_back({.name = "max-upload",
                      .metavar = "SIZE",
                      .help = "Most bytes of all uploads together, as 500MB, 2GiB or bytes. 0: uploads are refused.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.max_upload_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.max_upload_bytes); }});
  settings.push_back({.name = "max-program-bytes",
                      .metavar = "SIZE",
                      .help = "Most bytes of all programs' archives together, as 500MB, 2GiB or bytes. 0: uploads of\n"
                              "programs are refused.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.max_program_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.max_program_bytes); }});
  settings.push_back({.name = "max-dataset-bytes",
                      .metavar = "SIZE",
                      .help = "Most bytes on disk of all datasets together, as 500MB, 2GiB or bytes: an import that\n"
                              "would take more fails. 0: any number.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.max_dataset_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.max_dataset_bytes); }});
  settings.push_back(
      {.name = "max-jobs",
       .metavar = "N",
       .help = absl::StrCat("Most jobs that have not ended, 0 to ", kMostJobs, "; one more is refused. 0: any number."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadCount(v, kMostJobs, o.max_jobs); },
       .show = [](const Options& o) { return absl::StrCat(o.max_jobs); }});
  settings.push_back(
      {.name = "max-connections-per-client",
       .metavar = "N",
       .help = absl::StrCat("Most connections that one client (a token, a certificate, else another machine) calls\n"
                            "on at once, 0 to ",
                            kMostConnections, "; a call on one more is refused. 0: any number."),
       .is_list = false,
       .read = [](const std::string& v,
                  Options& o) { return ReadCount(v, kMostConnections, o.max_connections_per_client); },
       .show = [](const Options& o) { return absl::StrCat(o.max_connections_per_client); }});
  settings.push_back({.name = "min-free-disk",
                      .metavar = "SIZE",
                      .help = "Kept free on the disk of --state-dir, as 500MB, 2GiB or bytes: imports, uploads and\n"
                              "checkpoints that are due wait while less is, so that jobs stay on record. 0: nothing.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.min_free_disk_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.min_free_disk_bytes); }});
}

void AddLogSettings(std::vector<Setting>& settings) {
  settings.push_back(
      {.name = "log-format",
       .metavar = "NAME",
       .help = absl::StrCat("How the log on standard error is written: ", telemetry::kLogFormatNames.Accepted(),
                            ". json: an object\na line, with time, severity, logger, message, and job."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadName(v, telemetry::kLogFormatNames, o.log_format); },
       .show = [](const Options& o) { return std::string(telemetry::kLogFormatNames.Name(o.log_format)); }});
}

}  // namespace permafrost
