#include "daemon/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "daemon/settings.h"
#include "daemon/version.h"

namespace permafrost {
namespace {

constexpr int kMaxThreads = 1024;
constexpr double kMostDriverThreshold = 2;  // the maximum of MPS's own watermarks
constexpr int64_t kLeastSelfTestSteps = 20, kMostSelfTestSteps = 1'000'000;
constexpr char kNoSelfTest[] = "off";
constexpr char kNoRoot[] = "none";

absl::Status ReadSelfTestDevice(const std::string& value, Options& out) {
  if (value == kNoSelfTest) return absl::OkStatus();
  out.self_test_device = ParseDevice(value);
  return out.self_test_device ? absl::OkStatus() : Refuse(value, absl::StrCat(kNoSelfTest, ", ", AcceptedDevices()));
}

absl::Status ReadDevice(const std::string& value, Options& out) {
  const std::optional<DeviceChoice> parsed = ParseDevice(value);
  if (!parsed) return Refuse(value, AcceptedDevices());
  out.device = *parsed;
  return absl::OkStatus();
}

absl::Status ReadImportRoot(const std::string& value, Options& out) {
  return value == kNoRoot ? absl::OkStatus() : ReadDirectory(value, out.import_roots.emplace_back());
}

std::string ShowRoots(const std::vector<std::filesystem::path>& roots) {
  return absl::StrJoin(roots, ":", [](std::string* out, const auto& root) { absl::StrAppend(out, root.string()); });
}

// Defaults come from Options. Names come from the tables of the enums.
std::vector<Setting> MakeSettings() {
  std::vector<Setting> settings;
  settings.push_back({.name = "listen",
                      .metavar = "HOST:PORT",
                      .help = "Address of gRPC. Port 0 picks a free one.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadAddress(v, o.listen); },
                      .show = [](const Options& o) { return o.listen; }});
  settings.push_back({.name = "metrics",
                      .metavar = "HOST:PORT",
                      .help = "Address of http://HOST:PORT/metrics, or https. Port 0 picks a free one.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadAddress(v, o.metrics); },
                      .show = [](const Options& o) { return o.metrics; }});
  settings.push_back({.name = "state-dir",
                      .metavar = "DIR",
                      .help = "Database, datasets and jobs; made if missing. One daemon at a time.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadDirectory(v, o.state_dir); },
                      .show = [](const Options& o) { return o.state_dir.string(); }});
  settings.push_back({.name = "device",
                      .metavar = "NAME",
                      .help = absl::StrCat("Device that trains: ", AcceptedDevices(),
                                           ".\nauto is mps where there is one, else cuda, else cpu."),
                      .is_list = false,
                      .read = ReadDevice,
                      .show = [](const Options& o) { return DeviceText(o.device); }});
  settings.push_back({.name = "threads",
                      .metavar = "N",
                      .help = absl::StrCat("Threads of the device's math and of imports, 0 to ", kMaxThreads,
                                           ". 0: the cores this process may use."),
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadCount(v, kMaxThreads, o.threads); },
                      .show = [](const Options& o) { return absl::StrCat(o.threads); }});
  settings.push_back(
      {.name = "import-root",
       .metavar = "DIR",
       .help = "Directory that imports may read; symlinks and `..` cannot leave it. May be given\n"
               "several times; in the environment a `:` list. none: only uploads are imported.",
       .is_list = true,
       .read = ReadImportRoot,
       .show = [](const Options& o) { return o.import_roots.empty() ? kNoRoot : ShowRoots(o.import_roots); }});
  AddLimitSettings(settings);
  settings.push_back({.name = "quarantine-unknown-jobs",
                      .metavar = "",
                      .help = "Start although the database never held a job and jobs/ holds checkpoints or artifacts:\n"
                              "their directories are renamed to .quarantine-NAME-TIME, never deleted.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadBool(v, o.quarantine_unknown_jobs); },
                      .show = [](const Options& o) { return ShowBool(o.quarantine_unknown_jobs); }});
  AddAccessSettings(settings);
  AddJobSettings(settings);
  AddCareSettings(settings);
  AddLogSettings(settings);
  settings.push_back(
      {.name = "mps-driver-threshold",
       .metavar = "PART",
       .help = absl::StrCat("Driver memory of MPS from which on its caches are emptied between steps, and what\n"
                            "is planned is compiled again; a part of the recommended maximum, 0 to ",
                            kMostDriverThreshold, ". 0: never."),
       .is_list = false,
       .read = [](const std::string& v,
                  Options& o) { return ReadPart(v, kMostDriverThreshold, o.mps_driver_threshold); },
       .show = [](const Options& o) { return absl::StrCat(o.mps_driver_threshold); }});
  settings.push_back(
      {.name = "feature-reader",
       .metavar = "NAME",
       .help = absl::StrCat("How node features of large graphs are read: ", data::kFeatureReaderNames.Accepted(),
                            ". auto maps\nthem where memory holds them; else rows are read past the page cache, by\n"
                            "io_uring where it works, else by threads with pread. Mapped ones are read\nahead from "
                            "end to end where memory holds them."),
       .is_list = false,
       .read = [](const std::string& v,
                  Options& o) { return ReadName(v, data::kFeatureReaderNames, o.feature_reader); },
       .show = [](const Options& o) { return std::string(data::kFeatureReaderNames.Name(o.feature_reader)); }});
  settings.push_back({.name = "feature-cache",
                      .metavar = "SIZE",
                      .help = "Most memory for rows of features that are not mapped, as 500MB, 2GiB or bytes. 0: what\n"
                              "memory leaves, less when it gets short.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.feature_cache_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.feature_cache_bytes); }});
  settings.push_back(
      {.name = "self-test-device",
       .metavar = "NAME",
       .help = absl::StrCat("Serve nothing: train under each cache policy on this device, hold every step\n"
                            "to the CPU's, print a table, and exit with 0 where a sealed job added no\n"
                            "entry, an unbounded one did, and no step differs. off, or\n",
                            AcceptedDevices(), "."),
       .is_list = false,
       .read = ReadSelfTestDevice,
       .show = [](const Options& o) {
         return o.self_test_device ? DeviceText(*o.self_test_device) : std::string(kNoSelfTest);
       }});
  settings.push_back(
      {.name = "self-test-steps",
       .metavar = "N",
       .help = absl::StrCat("Steps of its sealed job, ", kLeastSelfTestSteps, " to ", kMostSelfTestSteps, "."),
       .is_list = false,
       .read = [](const std::string& v,
                  Options& o) { return ReadCount(v, kMostSelfTestSteps, o.self_test_steps, kLeastSelfTestSteps); },
       .show = [](const Options& o) { return absl::StrCat(o.self_test_steps); }});
  settings.push_back({.name = "self-test-data",
                      .metavar = "DIR",
                      .help = "What it trains on: a folder of many small graphs.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadDirectory(v, o.self_test_data); },
                      .show = [](const Options& o) { return o.self_test_data.string(); }});
  settings.push_back(
      {.name = "cache-policy",
       .metavar = "NAME",
       .help =
           absl::StrCat("What the graph cache of a job that does not say keeps:\n", spec::kPolicyNames.Accepted(), "."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadName(v, spec::kPolicyNames, o.graph_cache.policy); },
       .show = [](const Options& o) { return std::string(spec::kPolicyNames.Name(o.graph_cache.policy)); }});
  settings.push_back({.name = "freeze-at",
                      .metavar = "N",
                      .help = absl::StrCat("Training shapes that such a cache keeps before it freezes, 1 to ",
                                           spec::kMaxFreezeAt, ".\n0: derived from the dataset."),
                      .is_list = false,
                      .read = [](const std::string& v,
                                 Options& o) { return ReadCount(v, spec::kMaxFreezeAt, o.graph_cache.freeze_at); },
                      .show = [](const Options& o) { return absl::StrCat(o.graph_cache.freeze_at); }});
  settings.push_back(
      {.name = "on-miss",
       .metavar = "NAME",
       .help = absl::StrCat("What a frozen cache does with a shape that it does not hold:\n",
                            spec::kOnMissNames.Accepted(), "."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadName(v, spec::kOnMissNames, o.graph_cache.on_miss); },
       .show = [](const Options& o) { return std::string(spec::kOnMissNames.Name(o.graph_cache.on_miss)); }});
  settings.push_back(
      {.name = "shapes",
       .metavar = "NAME",
       .help = absl::StrCat("For how many shapes an executable of such a cache is:\n", spec::kShapesNames.Accepted(),
                            ".\nauto: dynamic or else ladder under policy freeze, else exact."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadName(v, spec::kShapesNames, o.graph_cache.shapes); },
       .show = [](const Options& o) { return std::string(spec::kShapesNames.Name(o.graph_cache.shapes)); }});
  settings.push_back(
      {.name = "rungs",
       .metavar = "N",
       .help = absl::StrCat("Most shapes of a ladder, 1 to ", spec::kMaxRungs, ".\n0: ", spec::kDefaultRungs, "."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadCount(v, spec::kMaxRungs, o.graph_cache.rungs); },
       .show = [](const Options& o) { return absl::StrCat(o.graph_cache.rungs); }});
  settings.push_back({.name = "audit-every",
                      .metavar = "N",
                      .help = absl::StrCat("Training steps from one audited replay of such a cache to the next, 1 to\n",
                                           spec::kMaxAuditEvery, ". 0: none."),
                      .is_list = false,
                      .read = [](const std::string& v,
                                 Options& o) { return ReadCount(v, spec::kMaxAuditEvery, o.graph_cache.audit_every); },
                      .show = [](const Options& o) { return absl::StrCat(o.graph_cache.audit_every); }});
  settings.push_back({.name = "strict",
                      .metavar = "",
                      .help = "A capture or an eager step of such a cache once it is frozen, and a graph break or a\n"
                              "failed audit at any time, fails the job.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadBool(v, o.graph_cache.strict); },
                      .show = [](const Options& o) { return ShowBool(o.graph_cache.strict); }});
  settings.push_back(
      {.name = "max-executables",
       .metavar = "N",
       .help = absl::StrCat("Executables of training and evaluation that such a cache holds at most, 1 to ",
                            spec::kMaxExecutables,
                            ":\nladders are cut to it, batches padded into what is held, or run eager. 0: no limit."),
       .is_list = false,
       .read = [](const std::string& v,
                  Options& o) { return ReadCount(v, spec::kMaxExecutables, o.graph_cache.max_executables); },
       .show = [](const Options& o) { return absl::StrCat(o.graph_cache.max_executables); }});
  return settings;
}

const std::vector<Setting>& Settings() {
  static const auto& settings = *new std::vector<Setting>(MakeSettings());
  return settings;
}

constexpr char kExitCodes[] =
    "A flag wins over its PERMAFROST_* variable, that over the file, that over the default.\n"
    "\n"
    "SIGTERM, SIGINT and the Drain call stop the daemon after a checkpoint; a second signal stops it at once.\n"
    "SIGHUP reads certificates, tokens and options again; the log tells what takes effect, and what at the next "
    "start.\n"
    "\n"
    "Exit codes:\n"
    "  0         drained, or the self-test passed\n"
    "  1         failed at start-up or while running, or the self-test failed\n"
    "  2         bad flag, variable or configuration file\n"
    "  75        the device failed, and stays so until the daemon is started anew, which goes on with its job\n"
    "  130, 143  stopped at once by a second SIGINT, SIGTERM";

std::string VariableOf(const std::string& name) {
  std::string variable = absl::StrCat("PERMAFROST_", absl::StrReplaceAll(name, {{"-", "_"}}));
  std::transform(variable.begin(), variable.end(), variable.begin(), [](unsigned char c) { return std::toupper(c); });
  return variable;
}

// The values given for one setting. `where` is the place: "--listen", "PERMAFROST_LISTEN", "FILE: listen".
struct Given {
  std::string where;
  std::vector<std::string> values;
};
using GivenByName = std::map<std::string, Given>;

absl::StatusOr<GivenByName> ReadConfigFile(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_directory(status)) {
    return Refuse(path, "a file that can be read");
  }
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigBase().from_file(path);
  } catch (const CLI::Error& e) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\": ", e.what()));
  }
  GivenByName given;
  for (const CLI::ConfigItem& item : items) {
    const auto is_named = [&item](const Setting& s) { return item.parents.empty() && item.name == s.name; };
    if (std::none_of(Settings().begin(), Settings().end(), is_named)) {
      // CLI11 reports a section as an item named "++" inside the section.
      const std::string key = item.name == "++" ? absl::StrCat("[", item.parents.back(), "]") : item.fullname();
      std::string accepted;
      for (const Setting& s : Settings()) absl::StrAppend(&accepted, accepted.empty() ? "" : ", ", s.name);
      return absl::InvalidArgumentError(
          absl::StrCat("\"", path, "\": key \"", key, "\" is unknown: accepted: ", accepted));
    }
    Given& entry = given[item.name];
    entry.where = absl::StrCat(path, ": ", item.name);
    entry.values.insert(entry.values.end(), item.inputs.begin(), item.inputs.end());
  }
  return given;
}

absl::Status Apply(const Setting& setting, const Given& given, Options& out) {
  if (!setting.is_list && given.values.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(given.where, ": ", given.values.size(), " values: accepted: one"));
  }
  for (const std::string& value : given.values) {
    if (absl::Status read = setting.read(value, out); !read.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(given.where, " ", read.message()));
    }
  }
  return absl::OkStatus();
}

// Completes the given flags with the environment, then the file, then the defaults.
absl::StatusOr<Options> Resolve(GivenByName given, const std::string& config_flag, const Environment& environment) {
  for (const Setting& setting : Settings()) {
    const std::string variable = VariableOf(setting.name);
    const std::optional<std::string> value = environment(variable);
    if (!value || value->empty()) continue;
    std::vector<std::string> values = {*value};
    if (setting.is_list) values = absl::StrSplit(*value, ':', absl::SkipEmpty());
    given.insert({setting.name, {variable, std::move(values)}});
  }
  const std::string config_variable = VariableOf("config");
  const std::string config = config_flag.empty() ? environment(config_variable).value_or("") : config_flag;
  if (!config.empty()) {
    absl::StatusOr<GivenByName> file = ReadConfigFile(config);
    if (!file.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(config_flag.empty() ? config_variable : "--config", " ", file.status().message()));
    }
    given.merge(*file);
  }
  Options options;
  for (const Setting& setting : Settings()) {
    if (const auto it = given.find(setting.name); it != given.end()) {
      PF_RETURN_IF_ERROR(Apply(setting, it->second, options));
    }
  }
  PF_RETURN_IF_ERROR(CheckAccess(options, [&given](const std::string& name) {
    const auto it = given.find(name);
    return it == given.end() ? absl::StrCat("default of --", name) : it->second.where;
  }));
  return options;
}

ParsedOptions Usage(absl::string_view line) {
  return {.options = std::nullopt, .text = absl::StrCat("permafrostd: ", line, "\n"), .exit_code = kExitUsage};
}

}  // namespace

ParsedOptions ParseOptions(int argc, const char* const* argv, const Environment& environment) {
  CLI::App app("Permafrost's daemon: trains graph neural networks for clients over gRPC.", "permafrostd");
  app.set_version_flag("--version", absl::StrCat("permafrostd ", std::string(Version())));
  app.footer(kExitCodes);
  for (const Setting& s : Settings()) {
    const std::string flag = absl::StrCat("--", s.name);
    const std::string variable = VariableOf(s.name);
    const std::string help = absl::StrCat(s.help, "\n(", variable, "; default ", s.show(Options()), ")");
    if (s.metavar.empty()) {
      app.add_flag(flag, help);
    } else {
      // CLI11 takes any number of values, because Apply checks the number for flags, variables and files alike.
      app.add_option(flag, help)->type_name(s.metavar)->expected(1)->take_all();
    }
  }
  std::string config;
  app.add_option("--config", config, "TOML file of `name = value` lines, named as the flags.\n(PERMAFROST_CONFIG)")
      ->type_name("FILE");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    const bool version = dynamic_cast<const CLI::CallForVersion*>(&e) != nullptr;
    return {.options = std::nullopt, .text = version ? absl::StrCat(e.what(), "\n") : app.help(), .exit_code = 0};
  } catch (const CLI::ParseError& e) {
    // CLI11's own message would list flag and value in the wrong order. The client (client/cli.cc) words this error
    // in the same way.
    const std::vector<std::string> strange = app.remaining();
    return Usage(strange.empty() ? absl::StrCat(e.what(), "; see --help")
                                 : absl::StrCat("'", strange.front(), "' is not known here; see --help"));
  }

  GivenByName given;
  for (const Setting& s : Settings()) {
    const std::string flag = absl::StrCat("--", s.name);
    if (const auto* option = app.get_option(flag); option->count() > 0) {
      given[s.name] = {flag, option->results()};
    }
  }
  absl::StatusOr<Options> options = Resolve(std::move(given), config, environment);
  if (!options.ok()) return Usage(options.status().message());
  return {.options = *std::move(options), .text = "", .exit_code = 0};
}

std::vector<OptionChange> ChangesBetween(const Options& before, const Options& after) {
  std::vector<OptionChange> changes;
  for (const Setting& setting : Settings()) {
    const std::string from = setting.show(before), to = setting.show(after);
    if (from != to) changes.push_back({.name = setting.name, .from = from, .to = to, .reloads = setting.reloads});
  }
  return changes;
}

}  // namespace permafrost
