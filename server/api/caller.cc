#include "api/caller.h"

#include <string_view>

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

}  // namespace

absl::StatusOr<access::Caller> CallerOf(const access::Gate& gate, const grpc::ServerContextBase& context,
                                        const CallMetadata& metadata) {
  const std::string peer = context.peer();
  access::Presented presented{.by_socket = CameBySocket(peer), .authorization = {}, .subject = {}};
  if (const auto it = metadata.find("authorization"); it != metadata.end()) {
    presented.authorization = {it->second.data(), it->second.size()};
  }
  std::string subject;
  if (const auto security = context.auth_context(); security != nullptr) {
    const auto subjects = security->FindPropertyValues("x509_subject");
    if (!subjects.empty()) subject = {subjects[0].data(), subjects[0].size()};
  }
  presented.subject = subject;
  return gate.Identify(presented);
}

std::string ClientOf(const access::Gate& gate, const grpc::ServerContextBase& context, const CallMetadata& metadata) {
  if (gate.auth() == access::Auth::kNone) return MachineOf(context.peer());
  const absl::StatusOr<access::Caller> caller = CallerOf(gate, context, metadata);
  return caller.ok() ? caller->name : MachineOf(context.peer());
}

}  // namespace permafrost::api
