#include "client/server_view.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/format.h"
#include "client/style.h"

namespace permafrost::client {
namespace {

std::string JobsText(const v1::ServerInfo& info) {
  std::string text = absl::StrCat(info.running_jobs(), " running, ", info.queued_jobs(), " queued");
  if (info.paused_jobs() > 0) absl::StrAppend(&text, ", ", info.paused_jobs(), " paused");
  return text;
}

// Returns, for example, "by token, over TLS".
std::string AuthText(const v1::ServerInfo& info) {
  return absl::StrCat(info.auth() == "token" ? "by token" : "anyone, as an admin", info.tls() ? ", over TLS" : "");
}

// Returns, for example, "5.34 MB allocated, 240 MB resident".
std::string MemoryText(const v1::DeviceMemory& memory) {
  std::vector<std::string> parts;
  const auto add = [&parts](bool told, int64_t bytes, const char* kind) {
    if (told) parts.push_back(absl::StrCat(BytesText(bytes), " ", kind));
  };
  add(memory.has_allocated_bytes(), memory.allocated_bytes(), "allocated");
  add(memory.has_reserved_bytes(), memory.reserved_bytes(), "reserved");
  add(memory.has_driver_bytes(), memory.driver_bytes(), "in the driver");
  add(memory.has_recommended_max_bytes(), memory.recommended_max_bytes(), "recommended at most");
  add(memory.has_resident_bytes(), memory.resident_bytes(), "resident");
  return absl::StrJoin(parts, ", ");
}

std::string GraphsText(const v1::DeviceState& device) {
  if (device.has_graph_entries()) return CountText(device.graph_entries());
  return absl::StrCat("unavailable: ", OneLine(device.no_graph_entries_reason()));
}

// Returns, for example, "3 times (never 2, job 1)", or an empty text if the caches were never emptied.
std::string EmptiedText(const v1::DeviceState& device) {
  int64_t times = 0;
  std::vector<std::string> reasons;
  for (const v1::EmptyCacheCount& emptied : device.empty_caches()) {
    if (emptied.count() == 0) continue;
    times += emptied.count();
    reasons.push_back(absl::StrCat(OneLine(emptied.reason()), " ", CountText(emptied.count())));
  }
  if (times == 0) return "";
  return absl::StrCat(CountText(times), times == 1 ? " time (" : " times (", absl::StrJoin(reasons, ", "), ")");
}

void AddDevice(const v1::DeviceState& device, std::vector<Field>& fields) {
  if (const std::string memory = MemoryText(device.memory()); !memory.empty()) fields.push_back({"memory", memory});
  if (device.has_graph_entries() || !device.no_graph_entries_reason().empty()) {
    fields.push_back({"device graphs", GraphsText(device)});
  }
  if (device.has_utilization()) {
    fields.push_back({"utilization", absl::StrCat(ExactText(100 * device.utilization()), " %")});
  }
  if (const std::string emptied = EmptiedText(device); !emptied.empty()) {
    fields.push_back({"caches emptied", emptied});
  }
  for (const v1::DeviceSetting& setting : device.settings()) {
    fields.push_back({"environment", OneLine(absl::StrCat(setting.name(), "=", setting.value()))});
  }
  for (const std::string& warning : device.warnings())
    fields.push_back({"warning", Cell(OneLine(warning), Tone::kWarn)});
}

std::string RestoredText(const v1::RestoredBackup& restored, const ViewTime& time) {
  std::string text = absl::StrCat("from the backup of ", WhenText(restored.create_time(), time));
  const auto add = [&text](const char* what, const char* collection, const auto& names) {
    std::string list;
    for (const std::string& name : names) {
      absl::StrAppend(&list, list.empty() ? "" : ", ", OneLine(StripCollection(collection, name)));
    }
    if (!list.empty()) absl::StrAppend(&text, "; ", what, ": ", list);
  };
  add("without datasets", "datasets", restored.datasets_wanted());
  add("jobs begun anew", "jobs", restored.jobs_anew());
  add("imports begun anew", "datasets", restored.imports());
  return text;
}

}  // namespace

std::string ClockJumpText(const google::protobuf::Duration& jump) {
  const bool behind = jump.seconds() < 0;
  return absl::StrCat(DurationText(absl::Seconds(behind ? -jump.seconds() : jump.seconds())),
                      behind ? " behind" : " ahead of", " the time that it saw pass");
}

std::string RenderServer(const v1::ServerInfo& info, const ViewTime& time, const RenderStyle& style) {
  const std::string commit = info.git_commit().empty() ? "" : absl::StrCat(" (", info.git_commit(), ")");
  std::vector<Field> fields = {
      {"address", info.listen_address()},
      {"metrics", info.metrics_address()},
      {"state", info.draining() ? Cell("draining", Tone::kWarn) : Cell("serving", Tone::kGood)},
      {"version", absl::StrCat(info.version(), commit)},
      {"libtorch", info.torch_version()},
      {"device", absl::StrCat(info.device(), ", ", info.threads(), info.threads() == 1 ? " thread" : " threads")}};
  if (!info.auth().empty()) fields.push_back({"callers", AuthText(info)});
  if (!info.socket_path().empty()) fields.push_back({"socket", OneLine(info.socket_path())});
  AddDevice(info.device_state(), fields);
  if (info.has_clock_jump()) {
    fields.push_back({"clock", Cell(absl::StrCat(ClockJumpText(info.clock_jump().by()),
                                                 ": nothing is deleted for its age until `permafrost server "
                                                 "confirm-clock` says that it is right"),
                                    Tone::kWarn)});
  }
  if (info.has_restored()) fields.push_back({"restored", RestoredText(info.restored(), time)});
  const std::vector<Field> rest = {
      {"started", WhenText(info.start_time(), time)},
      {"process", absl::StrCat(info.process_id())},
      {"state dir", info.state_dir()},
      {"import roots", info.import_roots().empty() ? "none" : absl::StrJoin(info.import_roots(), ", ")},
      {"jobs", JobsText(info)},
      {"datasets", absl::StrCat(info.datasets())}};
  fields.insert(fields.end(), rest.begin(), rest.end());
  return RenderFields(fields, style);
}

std::string RenderServerLine(const v1::ServerInfo& info, const RenderStyle& style) {
  const v1::DeviceState& device = info.device_state();
  std::string line = absl::StrCat(info.draining() ? Paint("draining", Tone::kWarn, style) : "serving", "  ",
                                  JobsText(info), "  ", info.device(), ": ", MemoryText(device.memory()));
  if (device.has_graph_entries()) absl::StrAppend(&line, ", ", GraphsText(device), " graphs");
  return line;
}

}  // namespace permafrost::client
