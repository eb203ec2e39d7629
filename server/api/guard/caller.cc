#include "api/guard/caller.h"

#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace permafrost::api {
namespace {

bool CameBySocket(absl::string_view peer) { return absl::StartsWith(peer, "unix"); }

// "ipv4:10.0.0.7:41234" -> "ipv4:10.0.0.7", "ipv6:%5Bfd00::7%5D:41234" -> "ipv6:%5Bfd00::7%5D". Empty: of this machine.
std::string MachineOf(absl::string_view peer) {
  const absl::string_view machine = peer.substr(0, peer.rfind(':'));
  const bool own = CameBySocket(peer) || absl::StartsWith(machine, "ipv4:127.") ||
                   absl::StrContains(machine, "[::1]") || absl::StrContains(machine, "%5B::1%5D");
  return own ? "" : std::string(machine);
}

// The credentials that a call brought along, kept for as long as it lasts.
struct Brought {
  bool by_socket = false;
  std::string authorization, subject;
  access::Presented presented() const {
    return {.by_socket = by_socket, .authorization = authorization, .subject = subject};
  }
};

Brought BroughtBy(const grpc::ServerContextBase& context, const CallMetadata& metadata) {
  Brought brought{.by_socket = CameBySocket(context.peer()), .authorization = {}, .subject = {}};
  if (const auto it = metadata.find("authorization"); it != metadata.end()) {
    brought.authorization.assign(it->second.data(), it->second.size());
  }
  if (const auto security = context.auth_context(); security != nullptr) {
    const auto subjects = security->FindPropertyValues("x509_subject");
    if (!subjects.empty()) brought.subject.assign(subjects[0].data(), subjects[0].size());
  }
  return brought;
}

}  // namespace

absl::StatusOr<access::Caller> CallerOf(const access::Gate& gate, const grpc::ServerContextBase& context,
                                        const CallMetadata& metadata) {
  return gate.Identify(BroughtBy(context, metadata).presented());
}

std::function<absl::Status()> StillAdmitted(const access::Gate& gate, const grpc::ServerContextBase& context,
                                            const CallMetadata& metadata) {
  if (gate.auth() == access::Auth::kNone) return [] { return absl::OkStatus(); };
  Brought brought = BroughtBy(context, metadata);
  const absl::StatusOr<access::Caller> caller = gate.Identify(brought.presented());
  // Revoked in the moment since it was let in: the first time that it is asked.
  access::Caller admitted = caller.ok() ? *caller : access::Caller();
  return [&gate, brought = std::move(brought), admitted = std::move(admitted)] {
    return gate.CheckStill(admitted, brought.presented());
  };
}

std::string ClientOf(const access::Gate& gate, const grpc::ServerContextBase& context, const CallMetadata& metadata) {
  if (gate.auth() == access::Auth::kNone) return MachineOf(context.peer());
  const absl::StatusOr<access::Caller> caller = CallerOf(gate, context, metadata);
  return caller.ok() ? caller->name : MachineOf(context.peer());
}

}  // namespace permafrost::api
