// Stores tokens and their roles.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/enum_names.h"

namespace permafrost::access {

// The rights of a caller. Each role includes the rights of the roles before it.
// Threads: plain values.
enum class Role {
  kViewer,    // reads everything except tokens
  kOperator,  // also changes jobs, their graph caches, datasets, uploads and programs, and evaluates weights
  kAdmin,     // also drains and backs up the server, manages tokens, and confirms the clock
};
inline constexpr EnumNames<Role, 3> kRoleNames{
    {{{Role::kViewer, "viewer"}, {Role::kOperator, "operator"}, {Role::kAdmin, "admin"}}}};

// Bearer tokens are made from 256 random bits and shown once. The SHA-256 of each token is kept in a file that only
// the daemon's user can read.
// Threads: all methods are thread-safe. Create, ChangeSecret and Revoke wait for the disk.

// The prefix of every secret. By this prefix, scanners of repositories and logs can find leaked secrets.
inline constexpr std::string_view kSecretPrefix = "pft_";
inline constexpr std::size_t kMaxTokens = 256;
// Returns whether `id` is 12 lower-case hex digits, the form of a token's id. No secret has this form.
bool IsTokenId(absl::string_view id);
inline constexpr std::size_t kMaxTokenLabel = 128;  // bytes

struct Token {
  std::string id;  // 12 hexadecimal digits, independent of the secret
  Role role = Role::kViewer;
  std::string label;
  absl::Time create_time;
  absl::Time expire_time = absl::InfiniteFuture();
  bool operator==(const Token&) const = default;
};

class TokenStore {
 public:
  // Reads `path`, which may be absent. `now` returns the time that decides whether a token has expired. `now` is
  // called on any thread. Errors: FailedPrecondition, naming the file and its fault; also the errors of ReadFile.
  static absl::StatusOr<std::unique_ptr<TokenStore>> Open(
      std::filesystem::path path, std::function<absl::Time()> now = [] { return absl::Now(); });
  // Reads the file again, in case somebody has replaced it. Errors: the errors of Open. After an error, the tokens
  // are unchanged.
  absl::Status Reload();

  struct Made {
    Token token;
    std::string secret;  // not stored anywhere
  };
  // Makes a token, and writes it to disk. `made_by` names the call that makes the token, for ChangeSecret. If
  // `made_by` is empty, the secret of this token cannot be changed.
  // Errors: InvalidArgument with violations of `token.label` (at most kMaxTokenLabel bytes of printable UTF-8) and
  // `token.expire_time` (must be in the future); ResourceExhausted (reason TOO_MANY_TOKENS, metadata `limit`) beyond
  // kMaxTokens; also the errors of WriteFileAtomic. After an error, there is no new token.
  absl::StatusOr<Made> Create(Role role, const std::string& label, absl::Time expire_time,
                              const std::string& made_by = "");
  // Gives a new secret to the token that the call `made_by` made. The old secret is invalid from then on. Errors:
  // NotFound if the call `made_by` made no token, or its token was revoked; also the errors of WriteFileAtomic, after
  // which the old secret is still valid.
  absl::StatusOr<Made> ChangeSecret(const std::string& made_by);
  // Returns all tokens, the oldest first. Expired tokens stay in the list until they are revoked.
  std::vector<Token> List() const;
  // Invalidates the token. An open stream of the token ends once the stream's owner calls Gate::CheckStill. Errors:
  // NotFound; also the errors of WriteFileAtomic, after which the token is still valid.
  absl::Status Revoke(const std::string& id);
  // Returns the token with this secret, or nullopt if there is none or it has expired. The time of the search does
  // not depend on where the secret differs from a stored secret.
  std::optional<Token> Find(std::string_view secret) const;

 private:
  struct Row {
    Token token;
    std::string hash;     // SHA-256 of the secret, 32 bytes
    std::string made_by;  // empty: the caller of Create gave none
  };

  TokenStore(std::filesystem::path path, std::function<absl::Time()> now)
      : path_(std::move(path)), now_(std::move(now)) {}
  absl::StatusOr<std::vector<Row>> Read() const;
  absl::Status Write(const std::vector<Row>& rows) const;

  const std::filesystem::path path_;
  const std::function<absl::Time()> now_;
  // Held while the file is written. Lookups need only mu_, so that they never wait for the disk.
  absl::Mutex writing_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable absl::Mutex mu_;
  std::vector<Row> rows_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::access
