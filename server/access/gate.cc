#include "access/gate.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::access {
namespace {

constexpr absl::string_view kBearer = "Bearer ";
constexpr char kAnonymous[] = "anonymous";

absl::Status Unauthenticated(absl::string_view reason, absl::string_view message) {
  return WithReason(absl::UnauthenticatedError(message), StdView(reason));
}

}  // namespace

absl::Status Gate::CheckStill(const Caller& admitted, const Presented& presented) const {
  const absl::StatusOr<Caller> now = Identify(presented);
  if (!now.ok()) return now.status();
  if (now->role >= admitted.role) return absl::OkStatus();
  return Unauthenticated("TOKEN_NOT_VALID", "the token has a lower role than it had when this call began");
}

absl::StatusOr<Caller> Gate::Identify(const Presented& presented) const {
  if (presented.by_socket) return Caller{.name = "unix", .role = Role::kAdmin};
  if (options_.auth == Auth::kNone) {
    const bool named = !presented.subject.empty();
    return Caller{.name = named ? std::string(presented.subject) : kAnonymous, .role = Role::kAdmin};
  }
  if (presented.authorization.empty()) {
    if (!presented.subject.empty() && options_.certificate_role) {
      return Caller{.name = std::string(presented.subject), .role = *options_.certificate_role};
    }
    return Unauthenticated(
        "NO_TOKEN",
        "no token: give one as `authorization: Bearer TOKEN` (permafrost --token-file FILE, or PERMAFROST_TOKEN)");
  }
  const absl::string_view authorization = AbslView(presented.authorization);
  if (!absl::StartsWithIgnoreCase(authorization, kBearer)) {
    return Unauthenticated("NO_TOKEN", "authorization: accepted: Bearer TOKEN");
  }
  const std::optional<Token> token = tokens_->Find(presented.authorization.substr(kBearer.size()));
  if (!token) {
    return Unauthenticated(
        "TOKEN_NOT_VALID",
        "the token is unknown, expired or revoked: an admin makes another (permafrost server token create)");
  }
  return Caller{.name = absl::StrCat("tokens/", token->id), .role = token->role};
}

absl::StatusOr<Caller> Gate::Admit(std::string_view path, std::optional<Role> least, const Presented& presented) const {
  absl::StatusOr<Caller> caller = Identify(presented);
  if (!least) return caller.ok() ? *std::move(caller) : Caller{.name = kAnonymous, .role = Role::kViewer};
  if (caller.ok() && caller->role < *least) {
    const std::string needed(kRoleNames.Name(*least)), role(kRoleNames.Name(caller->role));
    return WithReason(
        absl::PermissionDeniedError(absl::StrCat(AbslView(path.substr(path.empty() ? 0 : 1)), " needs role ", needed,
                                                 ": ", caller->name, " has role ", role)),
        "ROLE_TOO_LOW", {{"role", role}, {"needed", needed}});
  }
  return caller;
}

}  // namespace permafrost::access
