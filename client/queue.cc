#include "client/queue.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/failure.h"
#include "client/format.h"
#include "client/message_fields.h"
#include "client/server_group.h"
#include "nlohmann/json.hpp"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

// Returns, for example, "18.2 GB of 139 GB". A CPU has no memory of its own, so for a CPU the text gives the memory
// of the process.
std::string MemoryInUse(const v1::DeviceMemory& memory) {
  if (!memory.has_driver_bytes()) return memory.has_resident_bytes() ? BytesText(memory.resident_bytes()) : kNothing;
  return absl::StrCat(
      BytesText(memory.driver_bytes()),
      memory.has_recommended_max_bytes() ? absl::StrCat(" of ", BytesText(memory.recommended_max_bytes())) : "");
}

std::string ModelName(const v1::ModelSpec& model) {
  if (!model.program().empty()) return std::string(StripCollection("programs", model.program()));
  return EnumShortName(*v1::ModelSpec::Architecture_descriptor(), model.architecture());
}

// Returns how long the job has been in its state.
std::string SinceText(const v1::Job& job, absl::Time now) {
  if (job.state_changes().empty()) return kNothing;
  return EtaText(now - ToTime(job.state_changes().rbegin()->time()));
}

// Returns the reason for the job's state, and what the job waits for, such as "TOO_FEW_PEERS: ...; again in 4s".
// Returns "-" if there is nothing to tell, for example if the job only waits for its turn.
std::string WhyText(const v1::Job& job, absl::Time now) {
  if (job.pausing()) return "pauses at its next step";
  const bool waits = !IsOnDevice(job.state());
  std::string reason, what = job.last_error();
  if (waits && !job.state_changes().empty()) {
    const v1::StateChange& change = *job.state_changes().rbegin();
    if (change.reason() != "SUBMITTED") reason = change.reason();
    if (what.empty()) what = change.message();
  }
  std::string text = absl::StrCat(reason, reason.empty() || what.empty() ? "" : ": ", what);
  if (waits && job.has_retry_time() && ToTime(job.retry_time()) > now) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "again in ", EtaText(ToTime(job.retry_time()) - now));
  }
  return text.empty() ? kNothing : OneLine(text);
}

// Returns each job's place in the queue, from 1, or 0 for a job that is not queued. `jobs` must be sorted.
std::vector<int> PlacesOf(const std::vector<v1::Job>& jobs) {
  std::vector<int> places;
  places.reserve(jobs.size());
  int queued = 0;
  for (const v1::Job& job : jobs) places.push_back(job.state() == v1::Job::STATE_QUEUED ? ++queued : 0);
  return places;
}

}  // namespace

void SortQueue(std::vector<v1::Job>& jobs) {
  std::ranges::sort(jobs, {}, [](const v1::Job& job) {
    const int group = IsOnDevice(job.state()) ? 0 : job.state() == v1::Job::STATE_PAUSED ? 2 : 1;
    return std::tuple(group, -job.spec().priority(), ToTime(job.create_time()), job.name());
  });
}

std::string RenderQueues(const std::vector<ServerQueue>& queues, const ViewTime& time, const RenderStyle& style) {
  std::vector<std::vector<Cell>> servers, rows;
  for (const ServerQueue& queue : queues) {
    const v1::ServerInfo& info = queue.info;
    servers.push_back({OneLine(queue.name), info.draining() ? Cell("draining", Tone::kWarn) : Cell("serving"),
                       OneLine(info.device()), absl::StrCat(info.running_jobs()), absl::StrCat(info.queued_jobs()),
                       absl::StrCat(info.paused_jobs()), MemoryInUse(info.device_state().memory())});
    const std::vector<int> places = PlacesOf(queue.jobs);
    for (size_t j = 0; j < queue.jobs.size(); ++j) {
      const v1::Job& job = queue.jobs[j];
      rows.push_back({OneLine(queue.name), OneLine(StripCollection("jobs", job.name())), StateCell(job.state()),
                      places[j] > 0 ? absl::StrCat(places[j]) : kNothing, absl::StrCat(job.spec().priority()),
                      OneLine(StripCollection("datasets", job.spec().dataset())),
                      OneLine(ModelName(job.spec().model())), EpochText(job), SinceText(job, time.now),
                      WhyText(job, time.now)});
    }
  }
  const std::string out = RenderTable({{"SERVER"},
                                       {"STATE"},
                                       {"DEVICE"},
                                       {"RUNNING", Align::kRight},
                                       {"QUEUED", Align::kRight},
                                       {"PAUSED", Align::kRight},
                                       {"MEMORY", Align::kRight}},
                                      servers, style);
  if (rows.empty()) return absl::StrCat(out, "\nno unfinished jobs\n");
  return absl::StrCat(out, "\n",
                      RenderTable({{"SERVER"},
                                   {"JOB"},
                                   {"STATE"},
                                   {"PLACE", Align::kRight},
                                   {"PRIORITY", Align::kRight},
                                   {"DATASET"},
                                   {"MODEL"},
                                   {"EPOCH", Align::kRight},
                                   {"FOR", Align::kRight},
                                   {"WHY"}},
                                  rows, style));
}

std::string QueuesToJson(const std::vector<ServerQueue>& queues) {
  using nlohmann::ordered_json;
  ordered_json out{{"servers", ordered_json::array()}, {"jobs", ordered_json::array()}};
  for (const ServerQueue& queue : queues) {
    out["servers"].push_back({{"server", queue.name}, {"info", ordered_json::parse(ToJson(queue.info))}});
    const std::vector<int> places = PlacesOf(queue.jobs);
    for (size_t j = 0; j < queue.jobs.size(); ++j) {
      out["jobs"].push_back({{"server", queue.name},
                             {"place", places[j] > 0 ? ordered_json(places[j]) : ordered_json()},
                             {"job", ordered_json::parse(ToJson(queue.jobs[j]))}});
    }
  }
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

namespace {

// Shows the queues of all servers. For a server whose calls fail, prints one line instead.
ExitCode ShowQueues(Session& session, const std::vector<std::string>& names) {
  absl::StatusOr<ServerGroup> servers = ServerGroup::Open(session, names);
  if (!servers.ok()) return session.Fail(FileFailure(servers.status()));
  ExitCode exit = ExitCode::kOk;
  std::vector<ServerQueue> queues;
  for (size_t m = 0; m < servers->size(); ++m) {
    ServerQueue queue{.name = servers->name(m), .info = {}, .jobs = {}};
    grpc::Status status = servers->ReadInfo(m);
    if (status.ok()) status = servers->ListUnfinished(m, queue.jobs);
    if (!status.ok()) {
      exit = servers->session(m).Fail(status);
      if (session.interrupt().requested()) return exit;
      continue;
    }
    queue.info = servers->info(m);
    SortQueue(queue.jobs);
    queues.push_back(std::move(queue));
  }
  if (queues.empty()) return exit;
  session.Print(session.json() ? QueuesToJson(queues)
                               : RenderQueues(queues, ViewTime::Now(), session.terminal().style()));
  return exit;
}

}  // namespace

void AddQueueCommand(CLI::App& app, Command& chosen) {
  CLI::App* queue = app.add_subcommand("queue", "The unfinished jobs of one server or several");
  const auto servers = std::make_shared<std::vector<std::string>>();
  AddOnOption(*queue, *servers, "Show these servers (addresses or contexts) instead of one");
  queue->callback(
      [servers, &chosen] { chosen = [servers](Session& session) { return ShowQueues(session, *servers); }; });
}

}  // namespace permafrost::client
