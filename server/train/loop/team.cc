#include "train/loop/team.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/host_port.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::train {

absl::Status CheckReplicas(int64_t replicas, DeviceKind device, int64_t peers, std::string_view prefix) {
  if (replicas <= 1) return absl::OkStatus();
  std::string why;
  if (device != DeviceKind::kCpu) {
    why = absl::StrCat("replicas train on CPUs, and this server's device is ", AbslView(kDeviceNames.Name(device)),
                       "; accepted: 1");
  } else if (const std::string no_gloo = collective::NoGlooReason(); !no_gloo.empty()) {
    why = absl::StrCat(no_gloo, "; accepted: 1");
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

absl::StatusOr<std::unique_ptr<Team>> Team::Form(const RunRequest& request, Peers* peers, RunContext& context) {
  std::unique_ptr<Team> team(new Team());
  const int64_t size = request.options.replicas;
  collective::GlooOptions options{.size = size};
  const auto join = [&](const std::string& other) -> absl::Status {
    PF_ASSIGN_OR_RETURN(options.own_host, collective::OwnAddressTowards(other));
    PF_ASSIGN_OR_RETURN(team->group_, collective::JoinGloo(options));
    return absl::OkStatus();
  };
  if (const std::optional<RankPlace>& place = request.place) {
    options.rank = place->rank;
    options.store_host = place->leader_host;
    options.store_port = place->rendezvous_port;
    // The leader may have met an error that it waits for: what it does there bounds how long.
    options.step_timeout = options.meet_timeout;
    PF_RETURN_IF_ERROR(AsTransient(join(place->leader_host)));
    return team;
  }
  if (size <= 1) return team;
  if (peers == nullptr) {
    return AsTransient(absl::UnavailableError(
        absl::StrCat("the job wants ", size, " daemons, and this server has no --peers any more")));
  }
  auto rendezvous = collective::Rendezvous::Serve();
  if (!rendezvous.ok()) return AsTransient(rendezvous.status());
  team->rendezvous_ = *std::move(rendezvous);
  options.store_port = team->rendezvous_->port();
  auto recruits = peers->Recruit({.job = request.job_directory.filename().string(),
                                  .options = request.options,
                                  .dataset_checksum = HashHex(data::ContentChecksumOf(request.dataset)),
                                  .rendezvous_port = options.store_port});
  if (!recruits.ok()) return AsTransient(recruits.status());
  team->recruits_ = *std::move(recruits);
  const std::vector<std::string>& addresses = team->recruits_->addresses();
  context.Log(LogLevel::kInfo,
              absl::StrCat("trains on ", size, " daemons: this one and ", absl::StrJoin(addresses, ", ")));
  PF_ASSIGN_OR_RETURN(const HostPort first, ParseHostPort(addresses.front()));
  if (const absl::Status joined = join(first.host); !joined.ok()) return team->Explain(joined);
  return team;
}

absl::Status Team::Explain(absl::Status error) const {
  if (group_ != nullptr && group_->failure().ok()) return error;
  if (group_ == nullptr && recruits_ == nullptr) return error;
  const absl::Status gone = recruits_ == nullptr ? absl::OkStatus() : recruits_->WaitForFailure();
  if (!gone.ok()) return AsTransient(absl::UnavailableError(gone.message()));
  return AsTransient(absl::UnavailableError(absl::StrCat(
      "another daemon of the job did not answer: ", group_ != nullptr ? group_->failure().message() : error.message())));
}

}  // namespace permafrost::train
