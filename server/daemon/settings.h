// The settings of the daemon: what a flag, a variable and a key of the configuration file have in common, which is how
// a value is read and shown, the rows, and which of those of access fit together.
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

// One row a setting: its flag, its key in the file, and its variable PERMAFROST_NAME.
struct Setting {
  std::string name;
  std::string metavar;  // empty: a switch
  std::string help;
  bool is_list;
  // Takes one value; a list's is added.
  absl::Status (*read)(const std::string& value, Options& out);
  // Shows the value as `read` would take it; a list whole, with `:` between its values. Values that show equal are
  // equal: a reload compares the texts.
  std::string (*show)(const Options& options);
  // True: a reload takes a new value over; else it waits for the next start.
  bool reloads = false;
};

// InvalidArgument: the value, and what would be accepted. So do all of these refuse.
absl::Status Refuse(const std::string& value, absl::string_view accepted);
absl::Status ReadAddress(const std::string& value, std::string& out);
absl::Status ReadDirectory(const std::string& value, std::filesystem::path& out);
absl::Status ReadFilePath(const std::string& value, std::filesystem::path& out);
absl::Status ReadBool(const std::string& value, bool& out);
std::string ShowBool(bool value);
// 0 to `most`.
absl::Status ReadPart(const std::string& value, double most, double& out);
// 500000000, 500MB, 1.5GiB.
absl::Status ReadSize(const std::string& value, uint64_t& out);
absl::Status ReadSeconds(const std::string& value, double most, absl::Duration& out);

// Underscores are as good as hyphens: pyg-team/pytorch_geometric#10689 writes clear_per_step.
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

// The settings of backups, of the daemon's end, and of what is done about a device thread that hangs.
void AddCareSettings(std::vector<Setting>& settings);

// The settings that say how jobs share the device, and what is kept of those that have ended.
void AddJobSettings(std::vector<Setting>& settings);

// The settings that bound what clients may have the daemon keep.
void AddLimitSettings(std::vector<Setting>& settings);

// The settings of the daemon's log.
void AddLogSettings(std::vector<Setting>& settings);

// The settings that say who may call and how connections are protected.
void AddAccessSettings(std::vector<Setting>& settings);

// Returns where the value of a setting stands: "--listen", "PERMAFROST_LISTEN", "default of --listen".
using WhereOf = std::function<std::string(const std::string& name)>;
// Resolves Auth::kAuto. Errors: InvalidArgument for an address that other machines reach without TLS or without tokens,
// unless `insecure`; for tokens over plain text there, which nothing allows; for a certificate without its key, and
// what speaks of client certificates where there are none.
absl::Status CheckAccess(Options& options, const WhereOf& where);

}  // namespace permafrost
