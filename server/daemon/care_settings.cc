#include "daemon/care_settings.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace permafrost {
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

}  // namespace permafrost
