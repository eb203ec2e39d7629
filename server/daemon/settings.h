// The settings of the daemon. Each setting can be given as a flag, as a variable, and as a key of the configuration
// file. Its row says how a value is read and shown. CheckAccess checks that the settings about access fit together.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "daemon/options.h"

namespace permafrost {

// One setting: its flag, its key in the file, and its variable PERMAFROST_NAME.
struct Setting {
  std::string name;
  std::string metavar;  // empty: the setting is a switch
  std::string help;
  bool is_list;
  // Reads one value into `out`. For a list, appends the value.
  absl::Status (*read)(const std::string& value, Options& out);
  // Shows the value in the form that `read` accepts. The values of a list are separated by `:`. Equal texts must mean
  // equal values, because a reload compares the texts.
  std::string (*show)(const Options& options);
  // True: a reload applies a new value. False: a new value waits for the next start.
  bool reloads = false;
};

// Returns InvalidArgument with the value and what would be accepted. All functions below return this error for a bad
// value.
absl::Status Refuse(const std::string& value, absl::string_view accepted);
absl::Status ReadAddress(const std::string& value, std::string& out);
absl::Status ReadDirectory(const std::string& value, std::filesystem::path& out);
absl::Status ReadFilePath(const std::string& value, std::filesystem::path& out);
absl::Status ReadBool(const std::string& value, bool& out);
std::string ShowBool(bool value);
// Reads a number from 0 to `most`.
absl::Status ReadPart(const std::string& value, double most, double& out);
// Reads a size such as 500000000, 500MB or 1.5GiB.
absl::Status ReadSize(const std::string& value, uint64_t& out);
absl::Status ReadSeconds(const std::string& value, double most, absl::Duration& out);

// Reads an enum's name. Underscores may replace hyphens, because pyg-team/pytorch_geometric#10689 writes
// clear_per_step.
template <class E, std::size_t N>
absl::Status ReadName(const std::string& value, const EnumNames<E, N>& names, E& out) {
  const std::optional<E> parsed = names.Parse(absl::StrReplaceAll(value, {{"_", "-"}}));
  if (!parsed) return Refuse(value, names.Accepted());
  out = *parsed;
  return absl::OkStatus();
}

template <class Number>
absl::Status ReadCount(const std::string& value, Number most, Number& out, Number least = 0) {
  const bool ok = absl::SimpleAtoi(value, &out) && out >= least && out <= most;
  return ok ? absl::OkStatus() : Refuse(value, absl::StrCat(least, " to ", most));
}

// Adds the settings of backups, of the daemon's exit, and of the watchdog.
void AddCareSettings(std::vector<Setting>& settings);

// Adds the settings that say how jobs share the device, and what the daemon keeps of ended jobs.
void AddJobSettings(std::vector<Setting>& settings);

// Adds the settings that limit what the daemon stores for clients.
void AddLimitSettings(std::vector<Setting>& settings);

// Adds the settings of the daemon's log.
void AddLogSettings(std::vector<Setting>& settings);

// Adds the settings that say who may call and how connections are protected.
void AddAccessSettings(std::vector<Setting>& settings);

// Returns where the value of a setting was given: "--listen", "PERMAFROST_LISTEN", "default of --listen".
using WhereOf = std::function<std::string(const std::string& name)>;
// Resolves Auth::kAuto. Errors: InvalidArgument for
// - an address that other machines reach, if TLS or tokens are missing and `insecure` is not set;
// - tokens in plain text on such an address, even with `insecure`;
// - a certificate without its key;
// - options about client certificates without a client authority.
absl::Status CheckAccess(Options& options, const WhereOf& where);

}  // namespace permafrost
