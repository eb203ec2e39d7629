#include "train/loop/team.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "device/fault.h"

namespace permafrost::train {
namespace {

// A program's archive may take 1 / kProgramShare of the memory. Memory holds the archive twice while it arrives, and
// holds its tensors later.
constexpr uint64_t kProgramShare = 4;
// The time for which the leader waits for the other ranks to end after their last step.
constexpr absl::Duration kLastReports = absl::Seconds(2);
// The most lines that the thread that asks peers may add to the job's log.
constexpr size_t kMostNews = 100;

constexpr absl::Duration kStragglerWindow = absl::Seconds(10);
constexpr int kStragglerWindows = 3;
constexpr double kStragglerSlow = 1.5;

// Returns a rank's mean compute time of a step between two reports, in seconds. Returns nullopt if the rank did no
// step or started again.
std::optional<double> ComputeSeconds(const RankProgress& before, const RankProgress& now) {
  const int64_t steps = now.steps - before.steps;
  if (steps <= 0) return std::nullopt;
  const double seconds = (now.seconds - before.seconds) - (now.exchange_seconds - before.exchange_seconds);
  return std::max(0.0, seconds) / static_cast<double>(steps);
}

// Returns the median: with an even number of values, the lower of the two middle ones.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Returns the least number of daemons with which a job with these options trains.
int64_t FewestReplicas(const spec::TrainOptions& options) {
  return options.min_replicas > 0 ? options.min_replicas : options.replicas;
}

}  // namespace

absl::Status CheckReplicas(int64_t replicas, DeviceKind device, int64_t peers, std::string_view prefix) {
  if (replicas <= 1) return absl::OkStatus();
  std::string why;
  if (device != DeviceKind::kCpu) {
    why = absl::StrCat("replicas train on CPUs, and this server's device is ", AbslView(kDeviceNames.Name(device)),
                       "; accepted: 1");
  } else if (replicas > peers + 1) {
    why = absl::StrCat("this server and its --peers are ", peers + 1, peers == 0 ? " daemon" : " daemons",
                       "; accepted: 1 to ", peers + 1);
  } else {
    return absl::OkStatus();
  }
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "replicas"), absl::StrCat(replicas, ": ", why));
  return violations.ToStatus();
}

std::optional<std::string> StragglerWatch::Look(const std::vector<RankProgress>& ranks, absl::Duration now) {
  if (before_.size() != ranks.size()) {
    before_ = ranks;
    window_begin_ = now;
    return std::nullopt;
  }
  if (now - window_begin_ < kStragglerWindow) return std::nullopt;
  std::vector<double> seconds;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::optional<double> of_rank = ComputeSeconds(before_[r], ranks[r]);
    if (of_rank) seconds.push_back(*of_rank);
  }
  // Some rank may have no step in a window, during a long step or an evaluation.
  if (seconds.size() != ranks.size() || seconds.size() < 2) return std::nullopt;
  before_ = ranks;
  window_begin_ = now;
  const auto most = std::ranges::max_element(seconds);
  const int64_t rank = most - seconds.begin();
  const double slowest = *most;
  seconds.erase(most);
  const double others = Median(std::move(seconds));
  if (slowest <= kStragglerSlow * others) {
    windows_ = 0;
    return std::nullopt;
  }
  windows_ = rank == slowest_ ? windows_ + 1 : 1;
  slowest_ = rank;
  if (windows_ < kStragglerWindows || !told_.insert(rank).second) return std::nullopt;
  const std::string& address = ranks[static_cast<size_t>(rank)].address;
  return absl::StrFormat("rank %d (%s) keeps the others waiting: it computes %.3g ms a step, and they %.3g ms", rank,
                         address.empty() ? "this daemon" : address, 1e3 * slowest, 1e3 * others);
}

absl::StatusOr<std::unique_ptr<Team>> Team::Form(const RunRequest& request, const TeamOptions& options,
                                                 RunContext& context) {
  std::unique_ptr<Team> team(new Team());
  const int64_t wanted = request.options.replicas, least = FewestReplicas(request.options);
  const auto asked_to_stop = [&context] { return context.stop_requested() != StopRequest::kNone; };
  collective::TcpOptions tcp{.step_timeout = options.step_timeout,
                             .keep_going = [asked_to_stop] { return !asked_to_stop(); }};
  if (const std::optional<RankPlace>& place = request.place) {
    tcp.rank = place->rank;
    tcp.token = place->rendezvous_token;
    tcp.keep_connecting = tcp.keep_going;
    // The leader's timeouts limit the waiting for other ranks, and the leader itself may wait longer than a step
    // takes.
    tcp.step_timeout = tcp.connect_timeout = tcp.meet_timeout;
    auto joined = collective::JoinTcp(place->leader_host, place->rendezvous_port, tcp);
    if (asked_to_stop()) return absl::CancelledError("stopped while the other ranks were awaited");
    if (!joined.ok()) {
      return AsTransient(WithReason(absl::UnavailableError(joined.status().message()), kNotConnectedReason));
    }
    team->group_ = *std::move(joined);
    PF_RETURN_IF_ERROR(team->Meet(context));
    return team;
  }
  if (wanted <= 1) return team;
  if (options.peers == nullptr) {
    if (least <= 1) return team;
    return AsTransient(WithReason(
        absl::UnavailableError(absl::StrCat("the job wants ", least, " daemons, and this server has no --peers")),
        kTooFewPeersReason));
  }
  auto rendezvous = collective::Rendezvous::Serve();
  if (!rendezvous.ok()) return AsTransient(rendezvous.status());
  team->rendezvous_ = *std::move(rendezvous);
  RecruitRequest recruit{.job = request.job_directory.filename().string(),
                         .options = request.options,
                         .least = least - 1,
                         .dataset_checksum = HashHex(data::ContentChecksumOf(request.dataset)),
                         .dataset_file = data::FileOf(request.dataset),
                         .rendezvous_port = team->rendezvous_->port(),
                         .rendezvous_token = team->rendezvous_->token(),
                         .patience = options.patience,
                         .keep_going = tcp.keep_going,
                         .log = [&context](std::string_view line) { context.Log(LogLevel::kInfo, line); }};
  auto recruits = options.peers->Recruit(recruit);
  if (absl::IsUnavailable(recruits.status())) return AsTransient(recruits.status());
  PF_RETURN_IF_ERROR(recruits.status());
  team->recruits_ = *std::move(recruits);
  const std::vector<std::string>& addresses = team->recruits_->addresses();
  tcp.size = std::ssize(addresses) + 1;
  context.Log(LogLevel::kInfo, addresses.empty() ? "trains alone until other daemons are free"
                                                 : absl::StrCat("trains on ", tcp.size, " daemons: this one and ",
                                                                absl::StrJoin(addresses, ", ")));
  if (!addresses.empty()) {
    PF_RETURN_IF_ERROR(team->ConnectRecruits(tcp, asked_to_stop));
    PF_RETURN_IF_ERROR(team->Meet(context));
  }
  if (tcp.size == wanted) return team;
  // Only the device's thread may call the context and write to the job's log, so the thread that asks peers uses
  // these instead.
  recruit.keep_going = [&ends = team->ends_] { return !ends.is_set(); };
  recruit.log = [&news = team->news_](std::string_view line) { news.Add(line); };
  try {
    team->looks_ = std::thread([&team = *team, &peers = *options.peers, recruit, interval = options.look_interval] {
      team.LookForOthers(peers, recruit, interval);
    });
  } catch (const std::system_error& error) {
    context.Log(LogLevel::kWarning, absl::StrCat("the job takes in no other daemon: no thread: ", error.what()));
  }
  return team;
}

absl::Status Team::ConnectRecruits(collective::TcpOptions options, const std::function<bool()>& asked_to_stop) {
  // If the call to a recruit has ended, the recruit will not connect, so connecting stops.
  options.keep_going = [asked_to_stop, recruits = recruits_.get()] {
    return !asked_to_stop() && recruits->failure().ok();
  };
  options.keep_connecting = options.keep_going;
  auto led = collective::LeadTcp(*rendezvous_, options);
  if (asked_to_stop()) return absl::CancelledError("stopped while other daemons were awaited");
  if (led.ok()) {
    group_ = *std::move(led);
    return absl::OkStatus();
  }
  const ErrorReason reason = GetReason(led.status());
  const auto rank = reason.metadata.find("rank");
  int64_t missing = 0;
  // If the call to any recruit has ended, connecting stopped early, so the missing rank is not at fault.
  const bool waited = recruits_->failure().ok();
  if (waited && rank != reason.metadata.end() && absl::SimpleAtoi(rank->second, &missing)) recruits_->Avoid(missing);
  return WhyLost(led.status());
}

absl::Status Team::Meet(const RunContext& context) const {
  const absl::Status met = device::CatchTorch([this] {
    group_->Meet();
    return absl::OkStatus();
  });
  return met.ok() ? met : Explain(met, context);
}

Team::~Team() {
  ends_.Set();
  if (looks_.joinable()) looks_.join();
}

void Team::LookForOthers(Peers& peers, const RecruitRequest& request, absl::Duration interval) {
  while (!ends_.WaitFor(interval)) {
    if (can_grow()) continue;
    // If an allocation fails, the peers are asked again after the next interval.
    WithoutThrowing("the question if others would join", [&] {
      if (peers.CanRecruit(request)) can_grow_.store(true, std::memory_order_relaxed);
      return absl::OkStatus();
    }).IgnoreError();
  }
}

void Team::News::Add(std::string_view line) {
  const absl::MutexLock lock(&mu_);
  if (all_.size() < kMostNews && all_.emplace(line).second) new_.emplace_back(line);
}

std::vector<std::string> Team::News::Take() {
  const absl::MutexLock lock(&mu_);
  return std::exchange(new_, {});
}

absl::Status Team::ShareProgram(spec::ModelOptions& model) const {
  if (group_ == nullptr || model.architecture != spec::Architecture::kProgram) return absl::OkStatus();
  std::string archive;
  if (group_->leads()) {
    PF_ASSIGN_OR_RETURN(archive, ReadFile(model.program_file));
  }
  // Each rank learns the limits of all ranks, so that none waits for an archive that another rank refuses.
  const uint64_t share = MemoryLimit() / kProgramShare;
  const auto most = static_cast<double>(share);
  const std::vector<double> sizes = group_->AllGather(std::array{static_cast<double>(archive.size())});
  const std::vector<double> limits = group_->AllGather(std::array{most});
  const double smallest = std::ranges::min(limits);
  if (sizes.front() > smallest) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the program has %.0f bytes, and a daemon of the job takes %.0f: a quarter of its memory",
                        sizes.front(), smallest));
  }
  model.program_bytes = std::make_shared<const std::string>(
      group_->BroadcastText(std::move(archive), static_cast<int64_t>(sizes.front())));
  return absl::OkStatus();
}

absl::Status Team::Explain(absl::Status error, const RunContext& context) const {
  if (group_ == nullptr || group_->failure().ok()) return error;
  const bool stopped = context.stop_requested() != StopRequest::kNone;
  if (stopped && absl::IsCancelled(group_->failure())) return group_->failure();
  return WhyLost(group_->failure());
}

absl::Status Team::WhyLost(const absl::Status& seen) const {
  absl::Status gone = recruits_ == nullptr ? absl::OkStatus() : recruits_->WaitForFailure();
  if (absl::IsFailedPrecondition(gone)) return gone;
  return AsTransient(WithReason(absl::UnavailableError(gone.ok() ? seen.message() : gone.message()), kRankLostReason));
}

void Team::AwaitLastReports() const {
  if (recruits_ != nullptr) recruits_->AwaitEnd(kLastReports);
}

Exchange Team::Report(const RankProgress& own) const {
  Exchange exchange{.replicas = size()};
  exchange.ranks.push_back(own);
  if (group_ == nullptr) return exchange;
  const collective::Group::Traffic traffic = group_->traffic();
  exchange.exchanges = traffic.exchanges;
  exchange.seconds = absl::ToDoubleSeconds(traffic.time);
  exchange.sent_bytes = traffic.sent_bytes;
  if (recruits_ == nullptr) return exchange;
  for (RankProgress& other : recruits_->progress()) exchange.ranks.push_back(std::move(other));
  return exchange;
}

void Team::TellNews(const std::vector<RankProgress>& ranks, RunContext& context) {
  for (const std::string& line : news_.Take()) context.Log(LogLevel::kInfo, line);
  const std::optional<std::string> line = straggler_.Look(ranks, formed_.Elapsed());
  if (line) context.Log(LogLevel::kWarning, *line);
}

}  // namespace permafrost::train
