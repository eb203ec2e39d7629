// Keeps tokens, and the roles that they give.
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

// The rights of a caller: each role may do all that the ones before it may.
// Threads: values.
enum class Role {
  kViewer,    // reads
  kOperator,  // jobs, their graph caches, datasets and uploads
  kAdmin,     // drain, backup and tokens
};
inline constexpr EnumNames<Role, 3> kRoleNames{
    {{{Role::kViewer, "viewer"}, {Role::kOperator, "operator"}, {Role::kAdmin, "admin"}}}};

// Bearer tokens: made from 256 random bits, shown once, kept as their SHA-256 in a file that only the daemon's user
// reads.
// Threads: all methods are safe anywhere; Create and Revoke wait for the disk.

// The prefix of every secret, so that scanners of repositories and logs find one that got there.
inline constexpr std::string_view kSecretPrefix = "pft_";
inline constexpr std::size_t kMaxTokens = 256;
// Returns whether a token may be called so: 12 hex digits, which no secret is.
bool IsTokenId(absl::string_view id);
inline constexpr std::size_t kMaxTokenLabel = 128;  // bytes

struct Token {
  std::string id;  // 12 hexadecimal digits; tells nothing of the secret
  Role role = Role::kViewer;
  std::string label;
  absl::Time create_time;
  absl::Time expire_time = absl::InfiniteFuture();
  bool operator==(const Token&) const = default;
};

class TokenStore {
 public:
  // Reads `path`, which need not be there. Errors: FailedPrecondition naming the file and what is wrong in it; those of
  // ReadFile.
  // `now`: what tokens expire by; called on any thread.
  static absl::StatusOr<std::unique_ptr<TokenStore>> Open(
      std::filesystem::path path, std::function<absl::Time()> now = [] { return absl::Now(); });
  // Reads the file again, which somebody may have put there. Errors: as Open's; the tokens are then as they were.
  absl::Status Reload();

  struct Made {
    Token token;
    std::string secret;  // kept nowhere
  };
  // On disk when it returns. Errors: InvalidArgument with violations of `token.label` (at most kMaxTokenLabel bytes of
  // printable UTF-8) and `token.expire_time` (in the future); ResourceExhausted (reason TOO_MANY_TOKENS, metadata
  // `limit`) beyond kMaxTokens; those of WriteFileAtomic, and then there is no such token.
  // `made_by`: names the call that makes it, for ChangeSecret; empty: nothing does.
  absl::StatusOr<Made> Create(Role role, const std::string& label, absl::Time expire_time,
                              const std::string& made_by = "");
  // Another secret for the token that this call made; from here on the one before opens nothing. Errors: NotFound,
  // where none did or it was revoked; those of WriteFileAtomic, and then the one before stays.
  absl::StatusOr<Made> ChangeSecret(const std::string& made_by);
  // The oldest first; expired ones stay until they are revoked.
  std::vector<Token> List() const;
  // From here on it opens nothing; streams under way are ended by whoever asks Gate::CheckStill. Errors: NotFound;
  // those of WriteFileAtomic, and then it stays.
  absl::Status Revoke(const std::string& id);
  // The token of a secret, unless it has expired; nullopt: there is none. The time it takes does not depend on where
  // the secret differs from a stored one.
  std::optional<Token> Find(std::string_view secret) const;

 private:
  struct Row {
    Token token;
    std::string hash;     // SHA-256 of the secret, 32 bytes
    std::string made_by;  // empty: not said
  };

  TokenStore(std::filesystem::path path, std::function<absl::Time()> now)
      : path_(std::move(path)), now_(std::move(now)) {}
  absl::StatusOr<std::vector<Row>> Read() const;
  absl::Status Write(const std::vector<Row>& rows) const;

  const std::filesystem::path path_;
  const std::function<absl::Time()> now_;
  // Held while the file is written, so that lookups wait for no disk.
  absl::Mutex writing_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable absl::Mutex mu_;
  std::vector<Row> rows_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::access
