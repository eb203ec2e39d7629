#include "api/peers/grpc_peers.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "api/peers/dataset_copy.h"
#include "api/services/unary.h"
#include "api/wire/convert_job.h"
#include "api/wire/resource_name.h"
#include "api/wire/status.h"
#include "api/wire/wire_fields.h"
#include "base/id.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "jobs/job_requests.h"
#include "permafrost/v1/worker.grpc.pb.h"

namespace permafrost::api {
namespace {

// Keepalive: if a peer's machine vanishes, the peer's stream ends after the sum of these times.
constexpr int kPeerPingMs = 10'000, kPeerPingTimeoutMs = 10'000;
// After a collective failed because a rank ended, the leader waits at most this long for the end of the rank's
// stream, which gives the reason.
constexpr absl::Duration kNewsWait = absl::Seconds(1);
// The leader checks at this interval whether the job still wants its peers. It also waits this long between two
// rounds of asking peers.
constexpr absl::Duration kAskInterval = absl::Milliseconds(200);
// If a rank fails before it has run for this long, its peer is avoided.
constexpr absl::Duration kShortRank = absl::Seconds(30);
constexpr absl::Duration kFirstAvoidance = absl::Seconds(5), kLongestAvoidance = absl::Minutes(10);

// One rank of the job, which a peer runs. Holds the peer's stream.
class Recruit {
 public:
  Recruit(std::string address, std::shared_ptr<grpc::Channel> channel, const std::string& token,
          const v1::RunRankRequest& request)
      : address_(std::move(address)), stub_(v1::WorkerService::NewStub(std::move(channel))) {
    if (!token.empty()) context_.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    absl::StatusOr<std::thread> thread = StartThread(address_, [this, request] { Read(request); });
    if (thread.ok()) {
      thread_ = *std::move(thread);
    } else {
      End(thread.status());
    }
  }
  Recruit(const Recruit&) = delete;
  ~Recruit() {
    context_.TryCancel();
    if (thread_.joinable()) thread_.join();
  }

  const std::string& address() const { return address_; }
  // Returns Ok once the peer's device has taken the rank. For a call that only asks (validate_only), returns Ok if
  // the device would take the rank. Errors: the reason why the peer refuses, without the address; Cancelled.
  absl::Status AwaitAnswer(absl::Duration timeout, const std::function<bool()>& keep_going) {
    const Stopwatch waited;
    while (waited.Elapsed() < timeout) {
      {
        absl::MutexLock lock(&mu_);
        if (taken_) return absl::OkStatus();
        if (ended_) return *ended_;
      }
      if (!keep_going()) return absl::CancelledError("stopped while other daemons were asked");
      changed_.Reset();
      changed_.WaitFor(kAskInterval);
    }
    return absl::DeadlineExceededError(absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
  }
  // Returns the duration of the call: until its end if it has ended, else until now.
  absl::Duration lived() const {
    absl::MutexLock lock(&mu_);
    return ended_ ? lived_ : begun_.Elapsed();
  }
  // Returns the last progress that the rank reported.
  train::RankProgress progress() const {
    absl::MutexLock lock(&mu_);
    return progress_;
  }
  // Returns the status with which the rank ended; nullopt if it has not ended.
  std::optional<absl::Status> ended() const {
    absl::MutexLock lock(&mu_);
    return ended_;
  }

 private:
  void Read(const v1::RunRankRequest& request) {
    const auto reader = stub_->RunRank(&context_, request);
    v1::RunRankResponse response;
    while (reader->Read(&response)) {
      train::RankProgress progress;
      Violations violations;
      WireReader(response.progress(), "progress.", violations).Read(progress);
      progress.address = address_;
      absl::MutexLock lock(&mu_);
      taken_ = true;
      if (violations.ToStatus().ok()) progress_ = std::move(progress);
      changed_.Set();
    }
    absl::Status ended = FromGrpcStatus(reader->Finish());
    // The peer ended the call, although the job was not stopped.
    if (absl::IsCancelled(ended)) ended = absl::UnavailableError(ended.message());
    End(ended);
  }
  void End(const absl::Status& how) {
    absl::MutexLock lock(&mu_);
    ended_ = how;
    lived_ = begun_.Elapsed();
    changed_.Set();
  }

  const std::string address_;
  const Stopwatch begun_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  mutable absl::Mutex mu_;
  bool taken_ ABSL_GUARDED_BY(mu_) = false;
  train::RankProgress progress_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mu_);
  absl::Duration lived_ ABSL_GUARDED_BY(mu_);
  Event changed_;
  std::thread thread_;
};

// Peers that took a rank of a job and did not train it, or that could not get the dataset. For a time that doubles
// with each failure, such a peer is avoided: it is asked only if too few other peers join.
// Threads: thread-safe.
class AvoidedPeers {
 public:
  void Add(const std::string& job, const std::string& address) {
    const absl::MutexLock lock(&mu_);
    if (job != job_) peers_.clear();
    job_ = job;
    Avoided& peer = peers_[address];
    peer.delay = std::clamp(2 * peer.delay, kFirstAvoidance, kLongestAvoidance);
    peer.since.Restart();
  }
  bool Contains(const std::string& job, const std::string& address) const {
    const absl::MutexLock lock(&mu_);
    const auto found = peers_.find(address);
    return job == job_ && found != peers_.end() && found->second.since.Elapsed() < found->second.delay;
  }

 private:
  struct Avoided {
    absl::Duration delay = absl::ZeroDuration();
    Stopwatch since;
  };

  mutable absl::Mutex mu_;
  std::string job_ ABSL_GUARDED_BY(mu_);  // the job for which the peers are avoided
  std::map<std::string, Avoided> peers_ ABSL_GUARDED_BY(mu_);
};

class GrpcRecruits final : public train::Recruits {
 public:
  // `avoided` must outlive this object.
  GrpcRecruits(std::string job, AvoidedPeers& avoided) : job_(std::move(job)), avoided_(avoided) {}
  void Add(std::unique_ptr<Recruit> recruit) {
    addresses_.push_back(recruit->address());
    recruits_.push_back(std::move(recruit));
  }
  const std::vector<std::string>& addresses() const override { return addresses_; }
  std::vector<train::RankProgress> progress() const override {
    std::vector<train::RankProgress> progress;
    progress.reserve(recruits_.size());
    for (const auto& recruit : recruits_) progress.push_back(recruit->progress());
    return progress;
  }
  absl::Status failure() const override {
    absl::Status lost;
    for (const auto& recruit : recruits_) {
      const std::optional<absl::Status> ended = recruit->ended();
      // A rank that ends with Ok has trained to the end of the job. Other ranks may reach the end a moment later.
      if (!ended || ended->ok()) continue;
      const std::string reason = GetReason(*ended).reason;
      const std::string what = absl::StrCat(recruit->address(), ": ", ended->message());
      if (reason == train::kRankLostReason) {
        // This rank only reports that it lost another rank. The cause is the other rank.
        if (lost.ok()) lost = WithReason(absl::UnavailableError(what), reason);
        continue;
      }
      // A peer that trained for a while left for a passing reason, so it is not avoided.
      const bool is_unable =
          absl::IsInvalidArgument(*ended) || absl::IsResourceExhausted(*ended) || reason == train::kNotConnectedReason;
      if (is_unable || recruit->lived() < kShortRank) Note(*recruit);
      if (reason != train::kRankFailedReason) return absl::UnavailableError(what);
      return WithReason(absl::FailedPreconditionError(what), reason);
    }
    return lost;
  }
  void AwaitEnd(absl::Duration timeout) override {
    const Stopwatch waited;
    const auto goes_on = [](const auto& recruit) { return !recruit->ended().has_value(); };
    while (std::ranges::any_of(recruits_, goes_on) && waited.Elapsed() < timeout) {
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  void Avoid(int64_t rank) override {
    const auto recruit = static_cast<size_t>(rank - 1);
    if (recruit < recruits_.size()) Note(*recruits_[recruit]);
  }
  absl::Status WaitForFailure() override {
    const Stopwatch waited;
    absl::Status failed = failure();
    const auto is_vague = [&failed] { return failed.ok() || GetReason(failed).reason == train::kRankLostReason; };
    while (is_vague() && waited.Elapsed() < kNewsWait) {
      absl::SleepFor(absl::Milliseconds(20));
      failed = failure();
    }
    return failed;
  }

 private:
  // Notes each peer once, however often failure() finds that its rank has ended.
  void Note(const Recruit& recruit) const {
    const absl::MutexLock lock(&mu_);
    if (noted_.insert(recruit.address()).second) avoided_.Add(job_, recruit.address());
  }

  const std::string job_;
  AvoidedPeers& avoided_;
  mutable absl::Mutex mu_;
  mutable std::set<std::string> noted_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Recruit>> recruits_;
};

class GrpcPeers final : public train::Peers {
 public:
  explicit GrpcPeers(PeerOptions options) : options_(std::move(options)), copier_(options_.token) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPeerPingMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPeerPingTimeoutMs);
    // No proxy, because peers are on a private network.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // The backoff is short, so that a daemon that comes back is found soon.
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
    const std::shared_ptr<grpc::ChannelCredentials> credentials =
        options_.authority.empty() ? grpc::InsecureChannelCredentials()
                                   : grpc::SslCredentials({.pem_root_certs = options_.authority,
                                                           .pem_private_key = options_.key,
                                                           .pem_cert_chain = options_.certificate});
    for (const std::string& address : options_.addresses) {
      channels_.push_back(grpc::CreateCustomChannel(address, credentials, arguments));
    }
  }

  int64_t count() const override { return std::ssize(channels_); }

  absl::StatusOr<std::unique_ptr<train::Recruits>> Recruit(const train::RecruitRequest& request) override {
    v1::RunRankRequest wire = ToWire(request);
    const int64_t wanted = request.options.replicas - 1;
    auto recruits = std::make_unique<GrpcRecruits>(request.job, avoided_);
    const auto joined = [&recruits] { return std::ssize(recruits->addresses()); };
    std::map<std::string, std::string> refusals;  // by address
    std::vector<size_t> lacking;                  // peers without the dataset
    // Asks `peers` and returns the peers to ask again. If `needed`, asks a peer only while fewer than `least` peers
    // have joined, and sends the dataset to a peer that lacks it.
    const auto ask = [&](const std::vector<size_t>& peers, bool needed) -> absl::StatusOr<std::vector<size_t>> {
      std::vector<size_t> again;
      for (const size_t i : peers) {
        if (joined() == wanted || (needed && joined() >= request.least)) break;
        const std::string& address = options_.addresses[i];
        wire.set_rank(joined() + 1);
        std::unique_ptr<api::Recruit> recruit;
        absl::Status taken = Ask(i, wire, request, /*copies=*/needed, recruit);
        if (absl::IsCancelled(taken)) return taken;
        if (taken.ok()) {
          recruits->Add(std::move(recruit));
          refusals.erase(address);
          continue;
        }
        if (GetReason(taken).reason == train::kRankFailedReason) {
          return absl::FailedPreconditionError(absl::StrCat(address, ": ", taken.message()));
        }
        refusals[address] = std::string(taken.message());
        if (GetReason(taken).reason == train::kDatasetMissingReason) {
          lacking.push_back(i);
          continue;
        }
        if (joined() < request.least || GetReason(taken).reason == jobs::kDeviceBusyReason) again.push_back(i);
      }
      return again;
    };
    std::vector<size_t> asked, avoided;
    for (size_t i = 0; i < channels_.size(); ++i) {
      (avoided_.Contains(request.job, options_.addresses[i]) ? avoided : asked).push_back(i);
    }
    for (const Stopwatch waited;;) {
      PF_ASSIGN_OR_RETURN(asked, ask(asked, /*needed=*/false));
      if (joined() == wanted || asked.empty() || waited.Elapsed() >= request.patience) break;
      if (!request.keep_going()) return absl::CancelledError("stopped while other daemons were asked");
      absl::SleepFor(kAskInterval);
    }
    PF_RETURN_IF_ERROR(ask(std::exchange(lacking, {}), /*needed=*/true).status());
    PF_RETURN_IF_ERROR(ask(avoided, /*needed=*/true).status());
    std::vector<std::string> lines;
    lines.reserve(refusals.size());
    for (const auto& [address, why] : refusals) lines.push_back(absl::StrCat(address, ": ", why));
    if (joined() >= request.least) {
      for (const std::string& line : lines) request.log(absl::StrCat("does not join: ", line));
      return recruits;
    }
    return WithReason(
        absl::UnavailableError(absl::StrCat("the job wants ", request.least < wanted ? "at least " : "", request.least,
                                            request.least == 1 ? " other daemon" : " other daemons", ", and ", joined(),
                                            joined() == 1 ? " joins" : " join", "; ", absl::StrJoin(lines, "; "))),
        train::kTooFewPeersReason);
  }

  bool CanRecruit(const train::RecruitRequest& request) override {
    v1::RunRankRequest wire = ToWire(request);
    wire.set_rank(1);
    wire.set_validate_only(true);
    for (size_t i = 0; i < channels_.size() && request.keep_going(); ++i) {
      const std::string& address = options_.addresses[i];
      if (avoided_.Contains(request.job, address)) continue;
      std::unique_ptr<api::Recruit> question;
      const absl::Status answer = Ask(i, wire, request, /*copies=*/true, question);
      if (answer.ok()) return true;
      // Does not log that a peer is busy, because a peer that runs a rank of this very job also answers that it is
      // busy.
      if (GetReason(answer).reason == jobs::kDeviceBusyReason || absl::IsCancelled(answer)) continue;
      request.log(absl::StrCat("does not join: ", address, ": ", answer.message()));
    }
    return false;
  }

 private:
  v1::RunRankRequest ToWire(const train::RecruitRequest& request) const {
    v1::RunRankRequest wire;
    wire.set_job(FormatJobName(JobId(request.job)));
    SpecToWire({.train = request.options}, *wire.mutable_spec());
    wire.set_dataset_checksum(request.dataset_checksum);
    wire.set_rendezvous_port(request.rendezvous_port);
    wire.set_rendezvous_token(request.rendezvous_token);
    wire.set_version(options_.version);
    wire.set_torch_version(options_.torch_version);
    wire.set_device(options_.device);
    wire.set_leader_instance(options_.instance);
    return wire;
  }
  // Asks a peer to take the rank in `wire`. If the peer lacks the dataset and `copies` is true, sends it a copy and
  // asks again. Sets `recruit` to the last call.
  absl::Status Ask(size_t peer, const v1::RunRankRequest& wire, const train::RecruitRequest& request, bool copies,
                   std::unique_ptr<api::Recruit>& recruit) {
    const auto ask = [&] {
      recruit = std::make_unique<api::Recruit>(options_.addresses[peer], channels_[peer], options_.token, wire);
      return recruit->AwaitAnswer(options_.answer_timeout, request.keep_going);
    };
    absl::Status answer = ask();
    if (GetReason(answer).reason != train::kDatasetMissingReason || !copies || request.dataset_file.empty()) {
      return answer;
    }
    absl::Status copied = copier_.Copy(request, options_.addresses[peer], channels_[peer]);
    if (copied.ok()) return ask();
    // Another copy would take time and may fail, too.
    if (!absl::IsCancelled(copied)) avoided_.Add(request.job, options_.addresses[peer]);
    return copied;
  }

  const PeerOptions options_;
  DatasetCopier copier_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  AvoidedPeers avoided_;
};

}  // namespace

std::unique_ptr<train::Peers> MakeGrpcPeers(PeerOptions options) {
  return std::make_unique<GrpcPeers>(std::move(options));
}

}  // namespace permafrost::api
