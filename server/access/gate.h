// Identifies callers and decides whether they may call. The methods of all services use this class.
// Threads: all methods are thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "access/token_store.h"

namespace permafrost::access {

// How callers of an address identify themselves.
enum class Auth {
  // Under --insecure without TLS: kNone. Otherwise: kToken if other machines can reach an address, else kNone.
  kAuto,
  kNone,   // callers do not identify themselves: every caller is an admin
  kToken,  // callers send a bearer token, or show a client certificate if certificate_role is set
};
inline constexpr EnumNames<Auth, 3> kAuthNames{
    {{{Auth::kAuto, "auto"}, {Auth::kNone, "none"}, {Auth::kToken, "token"}}}};

struct GateOptions {
  Auth auth = Auth::kNone;
  // The role of a caller who shows a client certificate and no token. nullopt: such a caller is refused.
  std::optional<Role> certificate_role;
};

// The credentials that come with a call.
struct Presented {
  // True: the call came through the unix socket, which only the daemon's user can open. The caller is an admin.
  bool by_socket = false;
  // The whole value of the `authorization` header, "Bearer TOKEN". Empty: none was given.
  std::string_view authorization;
  // The subject of the verified client certificate. Empty: there is none.
  std::string_view subject;
};

struct Caller {
  // "tokens/ID", "unix", "anonymous", or the certificate's subject.
  std::string name;
  Role role = Role::kViewer;
  bool operator==(const Caller&) const = default;
};

// Borrows the token store.
class Gate {
 public:
  // `options.auth` must not be kAuto. `tokens` may be null if `options.auth` is kNone.
  Gate(GateOptions options, const TokenStore* tokens) : options_(options), tokens_(tokens) {}

  Auth auth() const { return options_.auth; }
  // Returns the caller. Errors: Unauthenticated (reason NO_TOKEN or TOKEN_NOT_VALID). The message is one line that
  // says how to give a token. It does not repeat any part of the caller's token.
  absl::StatusOr<Caller> Identify(const Presented& presented) const;
  // Checks that the credentials of a call in progress are still valid, and still give at least the role of
  // `admitted`.
  // Errors: Unauthenticated.
  absl::Status CheckStill(const Caller& admitted, const Presented& presented) const;
  // Identifies the caller of the method `path` and checks that the caller has at least the role `least`. If `least`
  // is nullopt, the method is open to all, and an unidentified caller is "anonymous".
  // Errors: the errors of Identify; PermissionDenied (reason ROLE_TOO_LOW), naming the method, the caller's role and
  // the required role.
  absl::StatusOr<Caller> Admit(std::string_view path, std::optional<Role> least, const Presented& presented) const;

 private:
  const GateOptions options_;
  const TokenStore* const tokens_;
};

}  // namespace permafrost::access
