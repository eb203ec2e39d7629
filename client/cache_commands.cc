#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cache_view.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/progress.h"
#include "client/requests.h"
#include "client/spec_rows.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

using Stub = v1::GraphCacheService::Stub;

constexpr int64_t kMaxEntriesInPage = 1000;

ExitCode ShowCache(Session& session, const std::string& job) {
  const auto stub = v1::GraphCacheService::NewStub(session.channel());
  v1::GetGraphCacheRequest request;
  request.set_name(CacheName(job));
  v1::GraphCache cache;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->GetGraphCache(context, request, &cache); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(cache);
  } else {
    session.Print(RenderCache(cache, ViewTime::Now(), session.terminal().style()));
  }
  return ExitCode::kOk;
}

struct EntryFlags {
  std::string job;
  // 0 lists all entries.
  int64_t limit = 0;
};

ExitCode Entries(Session& session, const EntryFlags& flags) {
  const auto stub = v1::GraphCacheService::NewStub(session.channel());
  v1::ListGraphCacheEntriesRequest request;
  request.set_parent(CacheName(flags.job));
  v1::ListGraphCacheEntriesResponse all;
  do {
    const int64_t missing = flags.limit > 0 ? flags.limit - all.entries_size() : kMaxEntriesInPage;
    request.set_page_size(static_cast<int32_t>(std::min(kMaxEntriesInPage, missing)));
    v1::ListGraphCacheEntriesResponse page;
    const grpc::Status status = session.Unary(
        [&](grpc::ClientContext* context) { return stub->ListGraphCacheEntries(context, request, &page); });
    if (!status.ok()) return session.Fail(status);
    all.mutable_entries()->MergeFrom(page.entries());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && (flags.limit == 0 || all.entries_size() < flags.limit));
  if (session.json()) {
    session.PrintJson(all);
  } else if (all.entries().empty()) {
    session.Print(absl::StrCat("the cache of job ", OneLine(CacheJob(flags.job)), " holds no executables\n"));
  } else {
    session.Print(
        RenderCacheEntries({all.entries().begin(), all.entries().end()}, ViewTime::Now(), session.terminal().style()));
  }
  return ExitCode::kOk;
}

// Makes the text about a command's effect. `queued` says whether the job waits for the device. While it waits, the
// command is recorded but not yet carried out.
using Outcome = std::string (*)(const v1::GraphCache& cache, bool queued);

std::string LaterText(const char* what, const v1::GraphCache& cache) {
  return absl::StrCat("to be ", what, " at step ", CountText(cache.command_step()), ", where the job goes on");
}

std::string FreezeOutcome(const v1::GraphCache& cache, bool queued) {
  if (cache.frozen()) return absl::StrCat("frozen at step ", CountText(cache.freeze_step()));
  return queued ? LaterText("frozen", cache) : "not frozen: its policy has changed meanwhile";
}

std::string ThawOutcome(const v1::GraphCache& cache, bool queued) {
  if (!cache.frozen()) return absl::StrCat("thawed at step ", CountText(cache.command_step()));
  return queued ? LaterText("thawed", cache) : "not thawed: its policy has changed meanwhile";
}

std::string ClearOutcome(const v1::GraphCache& cache, bool queued) {
  if (queued) return LaterText("cleared", cache);
  return absl::StrCat("cleared at step ", CountText(cache.command_step()), cache.frozen() ? ", still frozen" : "");
}

std::string PolicyOutcome(const v1::GraphCache& cache, bool queued) {
  // The freeze point of a queued job still belongs to its old policy.
  return absl::StrCat("from step ", CountText(cache.command_step()),
                      " on: ", PolicyText(cache.policy(), queued ? 0 : cache.freeze_at()));
}

// Returns whether the job waits for the device. False if the job's state cannot be read.
bool IsQueued(Session& session, const std::string& job) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::GetJobRequest request;
  request.set_name(WithCollection("jobs", CacheJob(job)));
  v1::Job answer;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->GetJob(context, request, &answer); });
  return status.ok() && answer.state() == v1::Job::STATE_QUEUED;
}

// Sends a command and prints its effect. `send` calls the stub's method with a bound request.
ExitCode SendCommand(Session& session, const std::string& job, Outcome outcome,
                     const std::function<grpc::Status(Stub&, grpc::ClientContext*, v1::GraphCache*)>& send) {
  const auto stub = v1::GraphCacheService::NewStub(session.channel());
  v1::GraphCache cache;
  const grpc::Status status =
      CallPatiently(session, [&](grpc::ClientContext* context) { return send(*stub, context, &cache); });
  const std::string short_name = OneLine(CacheJob(job));
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    // The job's present step takes longer than the client's time limit. The server may have recorded the command all
    // the same.
    Failure failure = RpcFailure(status, {session.options().server, /*connected=*/true, session.options().timeout()});
    absl::StrAppend(&failure.message, "; the command may take effect yet, see: ",
                    session.CommandLine(absl::StrCat("cache show ", short_name)));
    return session.Fail(failure);
  }
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(cache);
  } else {
    session.Print(absl::StrCat("cache of job ", short_name, ": ", outcome(cache, IsQueued(session, job)), " (",
                               CacheSizeText(cache), ")\n"));
  }
  return ExitCode::kOk;
}

ExitCode Freeze(Session& session, const std::string& job) {
  v1::FreezeGraphCacheRequest request;
  request.set_name(CacheName(job));
  request.set_request_id(MakeUuid());
  return SendCommand(session, job, FreezeOutcome, [&](Stub& stub, grpc::ClientContext* context, v1::GraphCache* cache) {
    return stub.FreezeGraphCache(context, request, cache);
  });
}

ExitCode Thaw(Session& session, const std::string& job) {
  v1::ThawGraphCacheRequest request;
  request.set_name(CacheName(job));
  request.set_request_id(MakeUuid());
  return SendCommand(session, job, ThawOutcome, [&](Stub& stub, grpc::ClientContext* context, v1::GraphCache* cache) {
    return stub.ThawGraphCache(context, request, cache);
  });
}

ExitCode Clear(Session& session, const std::string& job) {
  v1::ClearGraphCacheRequest request;
  request.set_name(CacheName(job));
  request.set_request_id(MakeUuid());
  return SendCommand(session, job, ClearOutcome, [&](Stub& stub, grpc::ClientContext* context, v1::GraphCache* cache) {
    return stub.ClearGraphCache(context, request, cache);
  });
}

struct PolicyFlags {
  std::string job;
  SpecFlags policy{PolicyRows()};
};

ExitCode ChangePolicy(Session& session, const PolicyFlags& flags) {
  const std::vector<SpecSetting> given = flags.policy.Given();
  if (given.empty()) {
    std::vector<std::string> names = flags.policy.Names();
    const std::string last = names.back();
    names.pop_back();
    return session.Fail(
        UsageFailure(absl::StrCat("nothing to change: give ", absl::StrJoin(names, ", "), " or ", last)));
  }
  v1::UpdateGraphCachePolicyRequest request;
  request.set_name(CacheName(flags.job));
  for (const SpecSetting& setting : given) setting.Apply(*request.mutable_policy());
  request.set_request_id(MakeUuid());
  return SendCommand(session, flags.job, PolicyOutcome,
                     [&](Stub& stub, grpc::ClientContext* context, v1::GraphCache* cache) {
                       return stub.UpdateGraphCachePolicy(context, request, cache);
                     });
}

void AddJobArgument(CLI::App& command, std::string& job) {
  command.add_option("JOB", job, "The job")->type_name("")->required();
}

void AddForCacheOfJob(CLI::App& cache, const char* name, const char* help,
                      ExitCode (*run)(Session&, const std::string&), Command& chosen) {
  CLI::App* command = cache.add_subcommand(name, help);
  const auto job = std::make_shared<std::string>();
  AddJobArgument(*command, *job);
  command->callback([job, run, &chosen] { chosen = [job, run](Session& session) { return run(session, *job); }; });
}

void AddEntries(CLI::App& cache, Command& chosen) {
  CLI::App* command = cache.add_subcommand("entries", "The executables that a job's cache holds, the oldest first");
  const auto flags = std::make_shared<EntryFlags>();
  AddJobArgument(*command, flags->job);
  command->add_option("--limit", flags->limit, "At most that many (default: all)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30).description(""))
      ->type_name("N");
  command->callback([flags, &chosen] { chosen = [flags](Session& session) { return Entries(session, *flags); }; });
}

void AddPolicy(CLI::App& cache, Command& chosen) {
  CLI::App* command =
      cache.add_subcommand("policy", "Change when a job's cache keeps executables, from its next step on");
  const auto flags = std::make_shared<PolicyFlags>();
  AddJobArgument(*command, flags->job);
  flags->policy.AddTo(*command);
  command->callback([flags, &chosen] { chosen = [flags](Session& session) { return ChangePolicy(session, *flags); }; });
}

}  // namespace

void AddCacheCommands(CLI::App& app, Command& chosen) {
  CLI::App* cache = app.add_subcommand("cache", "The graph caches of jobs: executables kept, one for each batch shape")
                        ->require_subcommand(1);
  AddForCacheOfJob(*cache, "show", "A job's cache: policy, freeze, memory, what became of its steps", ShowCache,
                   chosen);
  AddEntries(*cache, chosen);
  AddPolicy(*cache, chosen);
  AddForCacheOfJob(*cache, "freeze", "Keep nothing new from the job's next step on; what is kept is still used", Freeze,
                   chosen);
  AddForCacheOfJob(*cache, "thaw", "Keep new shapes again, and do not freeze until asked to", Thaw, chosen);
  AddForCacheOfJob(*cache, "clear", "Drop every executable at the job's next step; a frozen cache stays frozen", Clear,
                   chosen);
  AddCachePlan(*cache, chosen);
  AddCacheCensus(*cache, chosen);
  AddCacheWatch(*cache, chosen);
}

namespace {

// Prints what changes from one message of the stream to the next, and keeps the last message to compare it with the
// next one.
class CacheWatch {
 public:
  explicit CacheWatch(Session& session) : session_(session) {}

  void OnCache(const v1::GraphCache& cache) {
    if (session_.json()) {
      session_.PrintJson(cache);
    } else {
      if (last_) PrintChanges(*last_, cache);
      session_.terminal().Live(RenderCacheProgress(ToSnapshot(cache), session_.terminal().style()));
    }
    last_ = cache;
  }

  // Call it when the job has ended.
  void Finish() {
    session_.terminal().ClearLive();
    // In JSON mode, the last message of the stream has been printed already.
    if (session_.json() || !last_) return;
    const ViewTime now = ViewTime::Now();
    session_.Print(absl::StrCat(has_printed_ ? "\n" : "", RenderCache(*last_, now, session_.terminal().style())));
  }

 private:
  void PrintChanges(const v1::GraphCache& before, const v1::GraphCache& now) {
    if (before.policy().SerializeAsString() != now.policy().SerializeAsString()) {
      Line(absl::StrCat("from step ", CountText(now.command_step()),
                        " on: ", PolicyText(now.policy(), now.freeze_at())));
    }
    if (!before.frozen() && now.frozen()) {
      Line(absl::StrCat("frozen at step ", CountText(now.freeze_step()), " (", CacheSizeText(now), ")"));
    } else if (before.frozen() && !now.frozen()) {
      Line(absl::StrCat("thawed at step ", CountText(now.command_step()), " (", CacheSizeText(now), ")"));
    }
    for (int i = before.graph_breaks_size(); i < now.graph_breaks_size(); ++i) {
      const v1::GraphBreak& b = now.graph_breaks(i);
      Line(OneLine(absl::StrCat("graph break", b.op().empty() ? "" : " at ", b.op(), ": ", b.why())));
    }
  }
  void Line(const std::string& line) {
    session_.terminal().Line(line);
    has_printed_ = true;
  }

  Session& session_;
  std::optional<v1::GraphCache> last_;
  bool has_printed_ = false;
};

struct CacheWatchFlags {
  std::string job;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

ExitCode Watch(Session& session, const CacheWatchFlags& flags) {
  const auto stub = v1::GraphCacheService::NewStub(session.channel());
  v1::WatchGraphCacheRequest request;
  request.set_name(CacheName(flags.job));
  CacheWatch watch(session);
  const FollowResult result = Follow<v1::GraphCache>(
      session, absl::Seconds(flags.reconnect_seconds),
      [&](grpc::ClientContext* context) { return stub->WatchGraphCache(context, request); },
      [&](const v1::GraphCache& cache) {
        watch.OnCache(cache);
        return false;
      },
      /*ok_is_end=*/true);
  switch (result.end) {
    case FollowEnd::kDone:
      watch.Finish();
      return ExitCode::kOk;
    case FollowEnd::kFailed:
      return session.Fail(result.failure);
    case FollowEnd::kInterrupted:
      break;
  }
  const std::string job = OneLine(CacheJob(flags.job));
  return session.Interrupted(
      absl::StrCat("job ", job, " goes on; come back with: ", session.CommandLine(absl::StrCat("cache watch ", job))));
}

}  // namespace

void AddCacheWatch(CLI::App& cache, Command& chosen) {
  CLI::App* watch =
      cache.add_subcommand("watch", "Follow a job's cache until the job ends; Ctrl-C leaves the job running");
  const auto flags = std::make_shared<CacheWatchFlags>();
  watch->add_option("JOB", flags->job, "The job")->type_name("")->required();
  AddReconnectOption(*watch, flags->reconnect_seconds);
  watch->callback([flags, &chosen] { chosen = [flags](Session& session) { return Watch(session, *flags); }; });
}

}  // namespace permafrost::client
