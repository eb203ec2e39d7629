#include "api/services/worker_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "api/streams/stream_work.h"
#include "api/wire/convert_job.h"
#include "api/wire/resource_name.h"
#include "api/wire/wire_fields.h"
#include "base/host_port.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

constexpr absl::Duration kTellInterval = absl::Seconds(1);

// Source of RunRank. The device thread runs the rank, and a thread of the source waits for it.
// Threads: same as StreamSource. The thread starts in Subscribe. The destructor stops and joins it.
class RankSource final : public StreamSource<v1::RunRankResponse> {
 public:
  RankSource(jobs::JobManager& jobs, jobs::RankRequest request, ChangeHub& hub, std::string key)
      : work_("the rank", hub, std::move(key),
              [this, &jobs, request = std::move(request)](const StreamWork::OnProgress& on_progress) {
                return jobs.RunRank(request, [&](const train::RankProgress& progress) {
                  {
                    const absl::MutexLock lock(&mu_);
                    progress_ = progress;
                  }
                  // A total of 1 only marks that the device has taken the rank.
                  return on_progress(progress.steps, 1);
                });
              }) {}

  absl::StatusOr<Pull> Next(v1::RunRankResponse& response) override {
    const StreamWork::State state = work_.Read();
    if (state.outcome) {
      PF_RETURN_IF_ERROR(*state.outcome);
      // If the device had taken the rank, one more response reports its last steps.
      if (state.total == 0 || std::exchange(told_all_, true)) return Pull::kEnd;
    } else if (state.total == 0 || (since_told_ && since_told_->Elapsed() < kTellInterval)) {
      return Pull::kWait;
    }
    since_told_.emplace();
    const absl::MutexLock lock(&mu_);
    WireWriter(*response.mutable_progress()).Write(progress_);
    return Pull::kMore;
  }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override {
    return work_.Start(std::move(listener));
  }

 private:
  std::optional<Stopwatch> since_told_;
  bool told_all_ = false;
  absl::Mutex mu_;
  train::RankProgress progress_ ABSL_GUARDED_BY(mu_);
  StreamWork work_;  // last: its thread ends first
};

// Returns the host of a caller. gRPC writes its address as "ipv4:10.0.0.1:5000" or "ipv6:%5B::1%5D:5000".
absl::StatusOr<std::string> HostOf(absl::string_view peer) {
  std::string address(peer.substr(std::min(peer.size(), peer.find(':') + 1)));
  address = absl::StrReplaceAll(address, {{"%5B", "["}, {"%5D", "]"}});
  if (!absl::StartsWith(peer, "ipv4:") && !absl::StartsWith(peer, "ipv6:")) {
    return absl::InvalidArgumentError(absl::StrCat("a rank's leader calls by TCP, and this call comes from ", peer));
  }
  PF_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  return parsed.host;
}

}  // namespace

absl::StatusOr<jobs::RankRequest> WorkerService::Read(const v1::RunRankRequest& request,
                                                      const std::string& peer) const {
  if (!facts_.instance.empty() && facts_.instance == request.leader_instance()) {
    return WithReason(
        absl::FailedPreconditionError("this is the leader itself, under another name; accepted: --peers of others"),
        "PEER_IS_LEADER");
  }
  const auto differs = [](absl::string_view what, const std::string& own, const std::string& leader) {
    return absl::StrCat("this server's ", what, " is ", own, ", and the leader's ", leader, "; accepted: equal ones");
  };
  for (const auto& [what, own, leader] : {std::tuple{"version", facts_.version, request.version()},
                                          {"libtorch", facts_.torch_version, request.torch_version()}}) {
    if (own == leader) continue;
    return WithReason(absl::FailedPreconditionError(differs(what, own, leader)), "VERSION_DIFFERS");
  }
  if (facts_.device != request.device()) {
    return WithReason(absl::FailedPreconditionError(differs("device", facts_.device, request.device())),
                      "DEVICE_DIFFERS");
  }
  PF_ASSIGN_OR_RETURN(const spec::JobSpec spec, SpecFromWire(request, default_graph_cache_, LevelsOf(jobs_)));
  PF_ASSIGN_OR_RETURN(const JobId job, ParseJobName("job", request.job()));
  Violations violations;
  constexpr int kMostPort = 65'535;
  if (request.rendezvous_port() < 1 || request.rendezvous_port() > kMostPort) {
    violations.Add("rendezvous_port", absl::StrCat(request.rendezvous_port(), "; accepted: 1 to ", kMostPort));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  PF_ASSIGN_OR_RETURN(std::string host, HostOf(peer));
  return jobs::RankRequest{.job = job.value(),
                           .options = spec.train,
                           .dataset_checksum = request.dataset_checksum(),
                           .place = {.rank = request.rank(),
                                     .leader_host = std::move(host),
                                     .rendezvous_port = request.rendezvous_port(),
                                     .rendezvous_token = request.rendezvous_token()},
                           .validate_only = request.validate_only()};
}

grpc::ServerWriteReactor<v1::RunRankResponse>* WorkerService::RunRank(grpc::CallbackServerContext* context,
                                                                      const v1::RunRankRequest* request) {
  return StartStream<v1::RunRankResponse>(
      *context, limits_.ranks, streams_, [&]() -> absl::StatusOr<std::unique_ptr<RankSource>> {
        PF_ASSIGN_OR_RETURN(jobs::RankRequest rank, Read(*request, context->peer()));
        return std::make_unique<RankSource>(jobs_, std::move(rank), hub_, std::to_string(++ranks_));
      });
}

}  // namespace permafrost::api
