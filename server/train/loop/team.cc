#include "train/loop/team.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

// Part of the memory that a program's archive may take here: it is there twice while it comes, and then its tensors
// are.
constexpr uint64_t kProgramShare = 4;

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

absl::StatusOr<std::unique_ptr<Team>> Team::Form(const RunRequest& request, Peers* peers, absl::Duration step_timeout,
                                                 RunContext& context) {
  std::unique_ptr<Team> team(new Team());
  const int64_t size = request.options.replicas;
  collective::TcpOptions options{.size = size, .step_timeout = step_timeout};
  options.keep_going = [&context] { return context.stop_requested() == StopRequest::kNone; };
  if (const std::optional<RankPlace>& place = request.place) {
    options.rank = place->rank;
    options.token = place->rendezvous_token;
    options.keep_connecting = options.keep_going;
    // The leader bounds how long an error of another lasts, and what it waits for itself may take longer than a step.
    options.step_timeout = options.connect_timeout = options.meet_timeout;
    auto joined = collective::JoinTcp(place->leader_host, place->rendezvous_port, options);
    if (absl::IsCancelled(joined.status())) return joined.status();
    if (!joined.ok()) return AsTransient(joined.status());
    team->group_ = *std::move(joined);
    return team;
  }
  if (size <= 1) return team;
  if (peers == nullptr) {
    return AsTransient(WithReason(
        absl::UnavailableError(absl::StrCat("the job wants ", size, " daemons, and this server has no --peers")),
        kTooFewPeersReason));
  }
  auto rendezvous = collective::Rendezvous::Serve();
  if (!rendezvous.ok()) return AsTransient(rendezvous.status());
  team->rendezvous_ = *std::move(rendezvous);
  auto recruits = peers->Recruit({.job = request.job_directory.filename().string(),
                                  .options = request.options,
                                  .dataset_checksum = HashHex(data::ContentChecksumOf(request.dataset)),
                                  .rendezvous_port = team->rendezvous_->port(),
                                  .rendezvous_token = team->rendezvous_->token(),
                                  .keep_going = options.keep_going});
  if (absl::IsUnavailable(recruits.status())) return AsTransient(recruits.status());
  PF_RETURN_IF_ERROR(recruits.status());
  team->recruits_ = *std::move(recruits);
  context.Log(LogLevel::kInfo, absl::StrCat("trains on ", size, " daemons: this one and ",
                                            absl::StrJoin(team->recruits_->addresses(), ", ")));
  const auto asked_to_stop = [&context] { return context.stop_requested() != StopRequest::kNone; };
  // Nobody waits for one whose call has ended.
  options.keep_going = [asked_to_stop, recruits = team->recruits_.get()] {
    return !asked_to_stop() && recruits->failure().ok();
  };
  options.keep_connecting = options.keep_going;
  auto led = collective::LeadTcp(*team->rendezvous_, options);
  if (asked_to_stop()) return absl::CancelledError("stopped while other daemons were awaited");
  if (!led.ok()) return team->Explain(led.status(), context);
  team->group_ = *std::move(led);
  return team;
}

absl::Status Team::ShareProgram(spec::ModelOptions& model) const {
  if (group_ == nullptr || model.architecture != spec::Architecture::kProgram) return absl::OkStatus();
  std::string archive;
  if (group_->leads()) {
    PF_ASSIGN_OR_RETURN(archive, ReadFile(model.program_file));
  }
  const auto most = static_cast<int64_t>(MemoryLimit() / kProgramShare);
  model.program_bytes = std::make_shared<const std::string>(group_->BroadcastText(std::move(archive), most));
  return absl::OkStatus();
}

absl::Status Team::Explain(absl::Status error, const RunContext& context) const {
  const bool stopped = context.stop_requested() != StopRequest::kNone;
  if (stopped && group_ != nullptr && absl::IsCancelled(group_->failure())) return group_->failure();
  if (group_ == nullptr ? recruits_ == nullptr : group_->failure().ok()) return error;
  absl::Status gone = recruits_ == nullptr ? absl::OkStatus() : recruits_->WaitForFailure();
  if (absl::IsFailedPrecondition(gone)) return gone;
  if (!gone.ok()) return AsTransient(absl::UnavailableError(gone.message()));
  return AsTransient(absl::UnavailableError(group_ != nullptr ? group_->failure().message() : error.message()));
}

}  // namespace permafrost::train
