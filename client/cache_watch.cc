#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cache_view.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/progress.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"

namespace permafrost::client {
namespace {

// Keeps what has come over the stream so far.
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

  // The job has ended.
  void Finish() {
    session_.terminal().ClearLive();
    // In JSON the stream's last message said it already.
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
