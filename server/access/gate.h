// Decides who calls, and whether they may: the one decision for every method of every service.
// Threads: all methods are safe anywhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "access/token_store.h"

namespace permafrost::access {

// The ways in which callers of an address say who they are.
enum class Auth {
  kAuto,   // kNone where every address is loopback, else kToken
  kNone,   // they need not: all are admins
  kToken,  // by a bearer token, or by a client certificate where these have a role
};
inline constexpr EnumNames<Auth, 3> kAuthNames{
    {{{Auth::kAuto, "auto"}, {Auth::kNone, "none"}, {Auth::kToken, "token"}}}};

struct GateOptions {
  Auth auth = Auth::kNone;
  // The role of the holder of a client certificate who gives no token; nullopt: nothing.
  std::optional<Role> certificate_role;
};

// The credentials that a call brings along.
struct Presented {
  // Came through the unix socket, which only the daemon's user opens: an admin.
  bool by_socket = false;
  // The whole value of `authorization`, "Bearer TOKEN"; empty: none was given.
  std::string_view authorization;
  // The subject of the verified client certificate; empty: there is none.
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
  // `options.auth` is not kAuto. `tokens` may be null where it is kNone.
  Gate(GateOptions options, const TokenStore* tokens) : options_(options), tokens_(tokens) {}

  Auth auth() const { return options_.auth; }
  // Errors: Unauthenticated (reason NO_TOKEN or TOKEN_NOT_VALID), in one line that says how to give a token and repeats
  // nothing of the one that was given.
  absl::StatusOr<Caller> Identify(const Presented& presented) const;
  // Checks whether a call that was let in as `admitted`, and goes on, would be let in now. Errors: Unauthenticated.
  absl::Status CheckStill(const Caller& admitted, const Presented& presented) const;
  // As Identify, for a call of the method with this path, which needs the role `least`. nullopt: it is open to all, and
  // its caller is "anonymous" where nobody else can be told. Errors: PermissionDenied (reason ROLE_TOO_LOW), naming the
  // method, the role held and the role needed.
  absl::StatusOr<Caller> Admit(std::string_view path, std::optional<Role> least, const Presented& presented) const;

 private:
  const GateOptions options_;
  const TokenStore* const tokens_;
};

}  // namespace permafrost::access
