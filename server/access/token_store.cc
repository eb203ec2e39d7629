#include "access/token_store.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::access {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kSecretBytes = 32;
constexpr size_t kTokenIdBytes = 6;

std::string Sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return {digest.begin(), digest.end()};
}

absl::StatusOr<std::string> RandomBytes(size_t bytes) {
  std::string random(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(bytes)) != 1) {
    return absl::InternalError("the system gives no random bytes: no token was made");
  }
  return random;
}

absl::StatusOr<std::string> MakeSecret() {
  PF_ASSIGN_OR_RETURN(const std::string random, RandomBytes(kSecretBytes));
  return absl::StrCat(AbslView(kSecretPrefix), absl::WebSafeBase64Escape(random));
}

absl::Status CheckNewToken(const std::string& label, absl::Time expire_time, absl::Time now) {
  Violations violations;
  const bool printable = std::ranges::none_of(label, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (label.size() > kMaxTokenLabel || !printable) {
    violations.Add("token.label", absl::StrCat(label.size(), " bytes: accepted: at most ", kMaxTokenLabel,
                                               " bytes without control characters"));
  }
  if (expire_time <= now) {
    violations.Add("token.expire_time", absl::StrCat(absl::FormatTime(expire_time, absl::UTCTimeZone()),
                                                     " is past: accepted: a time to come, or none"));
  }
  return violations.ToStatus();
}

// Writes an infinite time as null.
json TokenTimeToJson(absl::Time time) {
  if (time == absl::InfiniteFuture()) return nullptr;
  return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone());
}

bool TokenTimeFromJson(const json& value, absl::Time& time) {
  time = absl::InfiniteFuture();
  std::string error;
  return value.is_null() ||
         (value.is_string() && absl::ParseTime(absl::RFC3339_full, value.get<std::string>(), &time, &error));
}

}  // namespace

bool IsTokenId(absl::string_view id) {
  return id.size() == 2 * kTokenIdBytes &&
         std::ranges::all_of(id, [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

absl::StatusOr<std::unique_ptr<TokenStore>> TokenStore::Open(std::filesystem::path path,
                                                             std::function<absl::Time()> now) {
  std::unique_ptr<TokenStore> store(new TokenStore(std::move(path), std::move(now)));
  PF_RETURN_IF_ERROR(store->Reload());
  return store;
}

absl::Status TokenStore::Reload() {
  const absl::MutexLock writing(&writing_);
  PF_ASSIGN_OR_RETURN(std::vector<Row> rows, Read());
  const absl::MutexLock lock(&mu_);
  rows_ = std::move(rows);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenStore::Row>> TokenStore::Read() const {
  std::vector<Row> rows;
  absl::StatusOr<std::string> text = ReadFile(path_);
  if (absl::IsNotFound(text.status())) return rows;
  PF_RETURN_IF_ERROR(text.status());
  // The error repeats nothing of the file's content, because the content includes hashes.
  const auto wrong = [this](absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_.string(), ": ", what, "; put back a good copy, or remove it and make new tokens"));
  };
  const json content = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object() || !content.contains("tokens") || !content["tokens"].is_array()) {
    return wrong("is no JSON object with tokens");
  }
  if (content.value("format", json()) != kFormat) return wrong("is not of format 1");
  rows.reserve(content["tokens"].size());
  for (const json& item : content["tokens"]) {
    const auto text_of = [&item](const char* key) {
      return item.is_object() && item.contains(key) && item[key].is_string() ? item[key].get<std::string>() : "";
    };
    const std::optional<Role> role = kRoleNames.Parse(text_of("role"));
    Row row;
    row.token.id = text_of("id");
    row.token.label = text_of("label");
    row.hash = absl::HexStringToBytes(text_of("sha256"));
    row.made_by = text_of("made_by");
    if (!role || row.token.id.empty() || row.hash.size() != SHA256_DIGEST_LENGTH ||
        !TokenTimeFromJson(item.value("create_time", json()), row.token.create_time) ||
        !TokenTimeFromJson(item.value("expire_time", json()), row.token.expire_time)) {
      return wrong(absl::StrCat("its token ", rows.size(), " cannot be read"));
    }
    row.token.role = *role;
    rows.push_back(std::move(row));
  }
  return rows;
}

absl::Status TokenStore::Write(const std::vector<Row>& rows) const {
  json content{{"format", kFormat}, {"tokens", json::array()}};
  for (const Row& row : rows) {
    content["tokens"].push_back({{"id", row.token.id},
                                 {"role", kRoleNames.Name(row.token.role)},
                                 {"label", row.token.label},
                                 {"create_time", TokenTimeToJson(row.token.create_time)},
                                 {"expire_time", TokenTimeToJson(row.token.expire_time)},
                                 {"sha256", absl::BytesToHexString(row.hash)}});
    if (!row.made_by.empty()) content["tokens"].back()["made_by"] = row.made_by;
  }
  return WriteFileAtomic(path_, content.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

absl::StatusOr<TokenStore::Made> TokenStore::Create(Role role, const std::string& label, absl::Time expire_time,
                                                    const std::string& made_by) {
  PF_RETURN_IF_ERROR(CheckNewToken(label, expire_time, now_()));
  PF_ASSIGN_OR_RETURN(const std::string secret, MakeSecret());
  PF_ASSIGN_OR_RETURN(const std::string id, RandomBytes(kTokenIdBytes));
  Made made{.token = {.id = absl::BytesToHexString(id),
                      .role = role,
                      .label = label,
                      .create_time = absl::Now(),
                      .expire_time = expire_time},
            .secret = secret};
  const absl::MutexLock writing(&writing_);
  std::vector<Row> rows;
  {
    const absl::MutexLock lock(&mu_);
    rows = rows_;
  }
  if (rows.size() >= kMaxTokens) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat("there are ", rows.size(),
                                                  " tokens, the most there may be; revoke one that nobody needs, or "
                                                  "that has expired, and ask again")),
        "TOO_MANY_TOKENS", {{"limit", absl::StrCat(kMaxTokens)}});
  }
  rows.push_back({.token = made.token, .hash = Sha256(made.secret), .made_by = made_by});
  PF_RETURN_IF_ERROR(Write(rows));
  const absl::MutexLock lock(&mu_);
  rows_ = std::move(rows);
  return made;
}

absl::StatusOr<TokenStore::Made> TokenStore::ChangeSecret(const std::string& made_by) {
  PF_ASSIGN_OR_RETURN(const std::string secret, MakeSecret());
  const absl::MutexLock writing(&writing_);
  std::vector<Row> rows;
  {
    const absl::MutexLock lock(&mu_);
    rows = rows_;
  }
  const auto row = std::ranges::find(rows, made_by, &Row::made_by);
  if (made_by.empty() || row == rows.end()) {
    return WithReason(absl::NotFoundError("the token that this request_id made was revoked since"), "TOKEN_NOT_FOUND");
  }
  row->hash = Sha256(secret);
  Made made{.token = row->token, .secret = secret};
  PF_RETURN_IF_ERROR(Write(rows));
  const absl::MutexLock lock(&mu_);
  rows_ = std::move(rows);
  return made;
}

std::vector<Token> TokenStore::List() const {
  const absl::MutexLock lock(&mu_);
  std::vector<Token> tokens;
  tokens.reserve(rows_.size());
  for (const Row& row : rows_) tokens.push_back(row.token);
  return tokens;
}

absl::Status TokenStore::Revoke(const std::string& id) {
  const absl::MutexLock writing(&writing_);
  std::vector<Row> rows;
  {
    const absl::MutexLock lock(&mu_);
    rows = rows_;
  }
  if (std::erase_if(rows, [&id](const Row& row) { return row.token.id == id; }) == 0) {
    return WithReason(absl::NotFoundError(absl::StrCat("tokens/", id, ": there is no such token")), "TOKEN_NOT_FOUND",
                      {{"token", id}});
  }
  PF_RETURN_IF_ERROR(Write(rows));
  const absl::MutexLock lock(&mu_);
  rows_ = std::move(rows);
  return absl::OkStatus();
}

std::optional<Token> TokenStore::Find(std::string_view secret) const {
  const std::string hash = Sha256(secret);
  const absl::Time now = now_();
  std::optional<Token> found;
  const absl::ReaderMutexLock lock(&mu_);
  // Compares every row, even after a match, so that timing reveals nothing.
  for (const Row& row : rows_) {
    if (CRYPTO_memcmp(row.hash.data(), hash.data(), hash.size()) == 0 && now < row.token.expire_time) found = row.token;
  }
  return found;
}

}  // namespace permafrost::access
