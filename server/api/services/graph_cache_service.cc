#include "api/services/graph_cache_service.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/services/unary.h"
#include "api/streams/stream_sources.h"
#include "api/wire/convert_graph_cache.h"
#include "api/wire/convert_job.h"
#include "api/wire/resource_name.h"
#include "base/monotonic.h"
#include "base/status.h"

namespace permafrost::api {
namespace {

using graphcache::Command;
using graphcache::CommandKind;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

// The call of a command. The call ends when the manager reports the outcome, when the client has gone, or when the
// deadline passes, whichever is first. The manager's report may come long after the call, and even after the server
// is destroyed. Owns itself: deleted in OnDone. OnDone comes after Finish, so the thread that calls Finish still has
// a living object.
// Threads: the manager's and gRPC's. Invariant: the thread that first sets `ended` calls Finish, once.
class CommandCall final : public ServerUnaryReactor {
 public:
  // Holds `slot` until the manager reports the outcome, because the command goes on waiting even if the client goes
  // away.
  static ServerUnaryReactor* Start(jobs::JobManager& jobs, const JobId& job, const Command& command,
                                   const std::string& request_id, CallLimit::Slot slot, WorkPool& workers,
                                   v1::GraphCache* response) {
    auto* call = new CommandCall();
    const auto done = [call, ended = call->ended_, slot = std::move(slot), job,
                       response](const absl::StatusOr<graphcache::Snapshot>& outcome) {
      if (ended->exchange(true)) return;
      call->Finish(ToGrpcStatus(WithoutThrowing("the command", [&]() -> absl::Status {
        if (outcome.ok()) *response = GraphCacheToWire(job, *outcome);
        return outcome.status();
      })));
    };
    // Runs on a worker, because it waits for the disk.
    const bool posted = workers.Post([&jobs, job, command, request_id, done, ended = call->ended_] {
      // If the client has given up the call, the command is not started. A client that asks again must not find that
      // its first call took effect late.
      if (ended->load()) return;
      const Patience patience(absl::InfiniteDuration(), [ended] { return !ended->load(); });
      const absl::Status begun = WithoutThrowing("the command", [&]() -> absl::Status {
        jobs.CommandGraphCache(job, command, request_id, done);
        return absl::OkStatus();
      });
      if (!begun.ok()) done(begun);
    });
    if (!posted) done(TooManyCalls("waiting calls", static_cast<int64_t>(workers.most_waiting())));
    // The call may be finished by now. The object still exists, because OnDone cannot run before gRPC has the object.
    return call;
  }

  void OnCancel() override {
    if (!ended_->exchange(true)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  CommandCall() = default;

  const std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

template <class Request>
ServerUnaryReactor* GraphCacheService::StartKind(CallbackServerContext* context, const Request& request,
                                                 CommandKind kind, v1::GraphCache* response) {
  const absl::StatusOr<JobId> job = ParseGraphCacheName("name", request.name());
  if (!job.ok()) return Reply(context, job.status());
  Command command;
  command.kind = kind;
  return StartCommand(context, *job, command, request.request_id(), response);
}

ServerUnaryReactor* GraphCacheService::StartCommand(CallbackServerContext* context, const JobId& job,
                                                    const Command& command, const std::string& request_id,
                                                    v1::GraphCache* response) {
  absl::StatusOr<CallLimit::Slot> slot = limits_.cache_commands.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return CommandCall::Start(jobs_, job, command, request_id, *std::move(slot), limits_.workers, response);
}

ServerUnaryReactor* GraphCacheService::GetGraphCache(CallbackServerContext* context,
                                                     const v1::GetGraphCacheRequest* request,
                                                     v1::GraphCache* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Get(*request, *response); });
}

ServerUnaryReactor* GraphCacheService::ExplainGraphCache(CallbackServerContext* context,
                                                         const v1::ExplainGraphCacheRequest* request,
                                                         v1::ExplainGraphCacheResponse* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Explain(*request, *response); });
}

ServerUnaryReactor* GraphCacheService::ListGraphCacheEntries(CallbackServerContext* context,
                                                             const v1::ListGraphCacheEntriesRequest* request,
                                                             v1::ListGraphCacheEntriesResponse* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return List(*request, *response); });
}

ServerUnaryReactor* GraphCacheService::UpdateGraphCachePolicy(CallbackServerContext* context,
                                                              const v1::UpdateGraphCachePolicyRequest* request,
                                                              v1::GraphCache* response) {
  Violations violations;
  const absl::StatusOr<JobId> job = ParseGraphCacheName("name", request->name());
  violations.AddMissing(job.status());
  Command command;
  command.kind = CommandKind::kUpdatePolicy;
  command.update = PolicyUpdateFromWire(*request, violations);
  if (!violations.empty()) return Reply(context, violations.ToStatus());
  return StartCommand(context, *job, command, request->request_id(), response);
}

ServerUnaryReactor* GraphCacheService::FreezeGraphCache(CallbackServerContext* context,
                                                        const v1::FreezeGraphCacheRequest* request,
                                                        v1::GraphCache* response) {
  return StartKind(context, *request, CommandKind::kFreeze, response);
}

ServerUnaryReactor* GraphCacheService::ThawGraphCache(CallbackServerContext* context,
                                                      const v1::ThawGraphCacheRequest* request,
                                                      v1::GraphCache* response) {
  return StartKind(context, *request, CommandKind::kThaw, response);
}

ServerUnaryReactor* GraphCacheService::ClearGraphCache(CallbackServerContext* context,
                                                       const v1::ClearGraphCacheRequest* request,
                                                       v1::GraphCache* response) {
  return StartKind(context, *request, CommandKind::kClear, response);
}

grpc::ServerWriteReactor<v1::GraphCache>* GraphCacheService::WatchGraphCache(
    CallbackServerContext* context, const v1::WatchGraphCacheRequest* request) {
  return StartStream<v1::GraphCache>(*context, limits_.watches, streams_,
                                     [&]() -> absl::StatusOr<std::unique_ptr<GraphCacheWatch>> {
                                       PF_ASSIGN_OR_RETURN(JobId job, ParseGraphCacheName("name", request->name()));
                                       return std::make_unique<GraphCacheWatch>(jobs_, std::move(job));
                                     });
}

absl::Status GraphCacheService::Get(const v1::GetGraphCacheRequest& request, v1::GraphCache& response) {
  PF_ASSIGN_OR_RETURN(const JobId job, ParseGraphCacheName("name", request.name()));
  PF_ASSIGN_OR_RETURN(const graphcache::Snapshot snapshot, jobs_.GetGraphCache(job));
  response = GraphCacheToWire(job, snapshot);
  return absl::OkStatus();
}

absl::Status GraphCacheService::Explain(const v1::ExplainGraphCacheRequest& request,
                                        v1::ExplainGraphCacheResponse& response) {
  PF_ASSIGN_OR_RETURN(const JobId job, ParseGraphCacheName("name", request.name()));
  PF_ASSIGN_OR_RETURN(const graphcache::Snapshot snapshot, jobs_.GetGraphCache(job));
  response = ExplanationToWire(job, snapshot);
  return absl::OkStatus();
}

absl::Status GraphCacheService::List(const v1::ListGraphCacheEntriesRequest& request,
                                     v1::ListGraphCacheEntriesResponse& response) {
  PF_ASSIGN_OR_RETURN(const JobId job, ParseGraphCacheName("parent", request.parent()));
  Violations violations;
  const int64_t page_size = ReadPageSize(request.page_size(), violations);
  const int64_t begin = ReadEntryPageToken(request.page_token(), job, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  PF_ASSIGN_OR_RETURN(const std::vector<graphcache::EntryInfo> entries, jobs_.GraphCacheEntries(job));
  const auto count = static_cast<int64_t>(entries.size());
  // If the cache was cleared since the last page, it may have fewer than `begin` entries.
  const int64_t end = std::min(begin + page_size, count);
  for (int64_t i = begin; i < end; ++i) *response.add_entries() = GraphCacheEntryToWire(entries[i]);
  if (end < count) response.set_next_page_token(MakeEntryPageToken(job, end));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* PlanService::PlanGraphCache(grpc::CallbackServerContext* context,
                                                      const v1::PlanGraphCacheRequest* request,
                                                      v1::PlanGraphCacheResponse* response) {
  absl::StatusOr<spec::JobSpec> spec = SpecFromWire(*request, default_graph_cache_, LevelsOf(jobs_));
  if (!spec.ok()) return Reply(context, spec.status());
  absl::StatusOr<CallLimit::Slot> slot = limits_.plans.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(
      context, "the plan", *std::move(slot),
      [this, spec = *std::move(spec), measure = !request->without_costs(), context, response]() -> absl::Status {
        PF_ASSIGN_OR_RETURN(const graphcache::CachePlan plan,
                            jobs_.PlanGraphCache(spec, measure, [context] { return !context->IsCancelled(); }));
        *response = CachePlanToWire(plan);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* CensusService::CensusGraphCache(grpc::CallbackServerContext* context,
                                                          const v1::CensusGraphCacheRequest* request,
                                                          v1::CensusGraphCacheResponse* response) {
  absl::StatusOr<spec::JobSpec> spec = SpecFromWire(*request, default_graph_cache_, LevelsOf(jobs_));
  if (!spec.ok()) return Reply(context, spec.status());
  const absl::StatusOr<graphcache::TorchRelease> release = TorchReleaseFromWire(request->torch_release());
  if (!release.ok()) return Reply(context, release.status());
  absl::StatusOr<CallLimit::Slot> slot = limits_.plans.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(
      context, "the census", *std::move(slot),
      [this, spec = *std::move(spec), release = *release, context, response]() -> absl::Status {
        PF_ASSIGN_OR_RETURN(const graphcache::Census census,
                            jobs_.TakeGraphCacheCensus(spec, release, [context] { return !context->IsCancelled(); }));
        *response = CensusToWire(census);
        return absl::OkStatus();
      });
}

}  // namespace permafrost::api
