// Tests roles, tokens, the gate and the audit log without a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "access/audit_log.h"
#include "access/gate.h"
#include "access/https_exposer.h"
#include "access/token_store.h"
#include "base/file.h"
#include "base/status.h"
#include "file_size_limit.h"
#include "temp_dir.h"

namespace permafrost::access {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string ContentOf(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TokenStoreTest : public testing::Test {
 protected:
  std::filesystem::path File() const { return dir_.path() / "tokens.json"; }
  std::unique_ptr<TokenStore> Open() const {
    absl::StatusOr<std::unique_ptr<TokenStore>> store = TokenStore::Open(File());
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  const TempDir dir_;
};

TEST_F(TokenStoreTest, ATokenIsFoundUntilItIsRevokedAndOutlivesTheStore) {
  std::string secret, id;
  {
    const auto store = Open();
    EXPECT_THAT(store->List(), IsEmpty());
    const auto made = store->Create(Role::kOperator, "ci", absl::InfiniteFuture());
    ASSERT_TRUE(made.ok()) << made.status();
    secret = made->secret;
    id = made->token.id;
    EXPECT_EQ(secret.substr(0, kSecretPrefix.size()), kSecretPrefix);
    EXPECT_EQ(secret.size(), kSecretPrefix.size() + 43) << "256 bits";
    EXPECT_EQ(store->Find(secret), made->token);
    const auto other = store->Create(Role::kViewer, "", absl::InfiniteFuture());
    ASSERT_TRUE(other.ok());
    EXPECT_NE(other->secret, secret);
    EXPECT_NE(other->token.id, id);
  }
  const auto store = Open();
  ASSERT_EQ(store->List().size(), 2U);
  const std::optional<Token> found = store->Find(secret);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->role, Role::kOperator);
  EXPECT_EQ(found->label, "ci");
  EXPECT_EQ(found->expire_time, absl::InfiniteFuture());
  for (const std::string& wrong : {std::string(), secret.substr(1), secret + "x", id, std::string("pft_")}) {
    EXPECT_EQ(store->Find(wrong), std::nullopt) << wrong;
  }
  EXPECT_THAT(ContentOf(File()), Not(HasSubstr(secret))) << "hashed at rest";
  ASSERT_TRUE(store->Revoke(id).ok());
  EXPECT_EQ(store->Find(secret), std::nullopt);
  EXPECT_EQ(store->Revoke(id).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Open()->List().size(), 1U);
}

TEST_F(TokenStoreTest, AnExpiredTokenOpensNothing) {
  const auto store = Open();
  const auto made = store->Create(Role::kAdmin, "", absl::Now() + absl::Milliseconds(50));
  ASSERT_TRUE(made.ok());
  absl::SleepFor(absl::Milliseconds(60));
  EXPECT_EQ(store->Find(made->secret), std::nullopt);
  EXPECT_EQ(store->List().size(), 1U) << "it is still listed";
}

// Tokens expire by the store's clock. It differs from the wall clock if someone has set the wall clock back.
TEST_F(TokenStoreTest, TokensExpireByTheClockThatTheStoreIsGiven) {
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const auto store = TokenStore::Open(File(), [&now] { return now; });
  ASSERT_TRUE(store.ok()) << store.status();
  const absl::Time expires = now + absl::Hours(1);
  const auto made = (*store)->Create(Role::kAdmin, "", expires);
  ASSERT_TRUE(made.ok()) << "by the wall clock this time is past: " << made.status();
  now = expires - absl::Seconds(1);
  EXPECT_EQ((*store)->Find(made->secret), made->token);
  now = expires;
  EXPECT_EQ((*store)->Find(made->secret), std::nullopt);
  const absl::Status late = (*store)->Create(Role::kAdmin, "", expires).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(late.message()), HasSubstr("is past"));
}

TEST_F(TokenStoreTest, WhatCannotBeATokenIsRefused) {
  const auto store = Open();
  EXPECT_EQ(store->Create(Role::kViewer, "a\nb", absl::InfiniteFuture()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->Create(Role::kViewer, std::string(129, 'a'), absl::InfiniteFuture()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->Create(Role::kViewer, "", absl::Now() - absl::Seconds(1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(store->List(), IsEmpty());
}

TEST_F(TokenStoreTest, OneTokenTooManyIsRefusedWithAReasonUntilOneIsRevoked) {
  nlohmann::json content{{"format", 1}, {"tokens", nlohmann::json::array()}};
  for (size_t i = 0; i < kMaxTokens; ++i) {
    content["tokens"].push_back({{"id", "t" + std::to_string(i)},
                                 {"role", "viewer"},
                                 {"label", ""},
                                 {"create_time", "2026-01-01T00:00:00Z"},
                                 {"expire_time", nullptr},
                                 {"sha256", std::string(64, 'a')}});
  }
  ASSERT_TRUE(WriteFileAtomic(File(), content.dump()).ok());
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_EQ(store->List().size(), kMaxTokens);
  const absl::Status refused = store->Create(Role::kViewer, "", absl::InfiniteFuture()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_EQ(GetReason(refused), (ErrorReason{.reason = "TOO_MANY_TOKENS", .metadata = {{"limit", "256"}}}));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("revoke"));
  ASSERT_TRUE(store->Revoke("t7").ok());
  EXPECT_TRUE(store->Create(Role::kViewer, "", absl::InfiniteFuture()).ok());
}

TEST_F(TokenStoreTest, ADamagedFileIsNamedAndNotReadInPart) {
  for (const char* text : {"", "{", "[]", R"({"format": 2, "tokens": []})", R"({"format": 1, "tokens": [{}]})",
                           R"({"format": 1, "tokens": [{"id": "a", "role": "root", "sha256": "00"}]})"}) {
    ASSERT_TRUE(WriteFileAtomic(File(), text).ok());
    const absl::Status status = TokenStore::Open(File()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(File().string())) << text;
  }
}

TEST_F(TokenStoreTest, TheGateKnowsWhoCallsAndWhatTheyMayDo) {
  const auto store = Open();
  const auto made = store->Create(Role::kOperator, "", absl::InfiniteFuture());
  ASSERT_TRUE(made.ok());
  const std::string bearer = "Bearer " + made->secret, token = "tokens/" + made->token.id;
  const Gate gate({.auth = Auth::kToken, .certificate_role = std::nullopt}, store.get());
  const Gate certificates({.auth = Auth::kToken, .certificate_role = Role::kViewer}, store.get());
  const Gate open({.auth = Auth::kNone, .certificate_role = std::nullopt}, nullptr);
  // The least role that the called method requires.
  const std::optional<Role> none, read = Role::kViewer, create = Role::kOperator, drain = Role::kAdmin;
  using enum absl::StatusCode;
  const struct {
    const char* why;
    const Gate& gate;
    std::optional<Role> least;
    Presented presented;
    absl::StatusCode want;
    std::string caller;
  } kCases[] = {
      {"probes have no token", gate, none, {}, kOk, "anonymous"},
      {"a bad token does not close health", gate, none, {false, "Bearer x", ""}, kOk, "anonymous"},
      {"no token", gate, read, {}, kUnauthenticated, ""},
      {"no such token", gate, read, {false, "Bearer pft_x", ""}, kUnauthenticated, ""},
      {"another scheme", gate, read, {false, "Basic eA==", ""}, kUnauthenticated, ""},
      {"the scheme alone", gate, read, {false, "Bearer ", ""}, kUnauthenticated, ""},
      {"above the least role", gate, read, {false, bearer, ""}, kOk, token},
      {"the least role", gate, create, {false, bearer, ""}, kOk, token},
      {"a role too low", gate, drain, {false, bearer, ""}, kPermissionDenied, ""},
      {"the socket", gate, drain, {true, "", ""}, kOk, "unix"},
      {"a certificate has no role", gate, read, {false, "", "CN=a"}, kUnauthenticated, ""},
      {"a certificate has one", certificates, read, {false, "", "CN=a"}, kOk, "CN=a"},
      {"a certificate's role is too low", certificates, create, {false, "", "CN=a"}, kPermissionDenied, ""},
      {"the token before the certificate", certificates, create, {false, bearer, "CN=a"}, kOk, token},
      {"a bad token is not made good by a certificate",
       certificates,
       read,
       {false, "Bearer x", "CN=a"},
       kUnauthenticated,
       ""},
      {"nobody is asked", open, drain, {}, kOk, "anonymous"},
      {"nobody is asked, and says who it is", open, drain, {false, "Bearer x", "CN=a"}, kOk, "CN=a"},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<Caller> caller = c.gate.Admit("/permafrost.v1.JobService/CreateJob", c.least, c.presented);
    EXPECT_EQ(caller.status().code(), c.want) << c.why << ": " << caller.status();
    EXPECT_EQ(caller.ok() ? caller->name : "", c.caller) << c.why;
    EXPECT_THAT(std::string(caller.status().message()), Not(HasSubstr(made->secret))) << c.why;
  }
  EXPECT_EQ(
      std::string(gate.Admit("/permafrost.v1.ServerService/Drain", drain, {false, bearer, ""}).status().message()),
      "permafrost.v1.ServerService/Drain needs role admin: " + token + " has role operator");
}

TEST(BearerOf, TakesTheTokenOutOfABasicPassword) {
  EXPECT_EQ(BearerOf("Basic cHJvbTpwZnRfeA=="), "Bearer pft_x");  // the Base64 of prom:pft_x
  EXPECT_EQ(BearerOf("Bearer pft_x"), "Bearer pft_x");
  EXPECT_EQ(BearerOf("Basic !!"), "Basic !!");
  EXPECT_EQ(BearerOf(""), "");
}

std::vector<std::string> ResourcesIn(const std::filesystem::path& path) {
  std::vector<std::string> resources;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    resources.push_back(nlohmann::json::parse(line).at("resource").get<std::string>());
  }
  return resources;
}

TEST(AuditLog, IsSetAsideBySizeAndKeepsTheNewest) {
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "audit.jsonl";
  const auto entry = [](const std::string& resource) {
    return AuditEntry{
        .caller = "unix", .role = "admin", .peer = "unix:", .method = "m", .resource = resource, .code = "OK"};
  };
  {
    const auto log = AuditLog::Open({.path = path, .max_bytes = 1, .kept = 2});
    ASSERT_TRUE(log.ok()) << log.status();
    for (const char* resource : {"a", "b", "c", "d"}) (*log)->Write(entry(resource));
  }
  EXPECT_THAT(ResourcesIn(path), ElementsAre("d"));
  EXPECT_THAT(ResourcesIn(path.string() + ".1"), ElementsAre("c"));
  EXPECT_THAT(ResourcesIn(path.string() + ".2"), ElementsAre("b"));
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".3"));
  const auto again = AuditLog::Open({.path = path});
  ASSERT_TRUE(again.ok());
  (*again)->Write(entry("e\n\xff"));
  EXPECT_THAT(ResourcesIn(path), ElementsAre("d", "e\n\xEF\xBF\xBD")) << "one line an entry, whatever it holds";
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST(AuditLog, ALineThatDidNotFitLeavesNoHalfOfIt) {
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "audit.jsonl";
  const auto log = AuditLog::Open({.path = path});
  ASSERT_TRUE(log.ok()) << log.status();
  AuditEntry entry{.caller = "unix", .role = "admin", .peer = "", .method = "m", .resource = "a", .code = "OK"};
  (*log)->Write(entry);
  const std::string before = ContentOf(path);
  {
    const FileSizeLimit full(before.size() + 10);
    entry.resource = "b";
    (*log)->Write(entry);
    EXPECT_EQ(ContentOf(path), before);
  }
  entry.resource = "c";
  (*log)->Write(entry);
  EXPECT_THAT(ResourcesIn(path), ElementsAre("a", "c"));
}

TEST(AuditLog, HalfALineThatAPowerCutLeftIsEndedBeforeTheNextBegins) {
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "audit.jsonl";
  AuditEntry entry{.caller = "unix", .role = "admin", .peer = "", .method = "m", .resource = "a", .code = "OK"};
  for (const bool cut : {true, false}) {
    if (cut) std::ofstream(path) << R"({"time":"2026-01)";
    const auto log = AuditLog::Open({.path = path});
    ASSERT_TRUE(log.ok()) << log.status();
    (*log)->Write(entry);
    (*log)->Write(entry);
  }
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 5U) << "the half one, and no empty one";
  EXPECT_EQ(lines[0], R"({"time":"2026-01)");
  for (size_t i = 1; i < lines.size(); ++i) EXPECT_EQ(nlohmann::json::parse(lines[i]).at("resource"), "a") << i;
}

TEST(AuditLog, AFloodOfUnknownCallersIsCountedInPlaceOfWritten) {
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "audit.jsonl";
  const auto log = AuditLog::Open({.path = path, .unknown_burst = 3, .unknown_per_second = 0});
  ASSERT_TRUE(log.ok());
  AuditEntry entry{
      .caller = "unknown", .role = "", .peer = "", .method = "m", .resource = "x", .code = "UNAUTHENTICATED"};
  for (int i = 0; i < 10; ++i) (*log)->Write(entry);
  EXPECT_EQ(ResourcesIn(path).size(), 3U);
  entry.role = "admin";
  (*log)->Write(entry);
  std::ifstream in(path);
  std::string line;
  while (in.peek() != EOF) std::getline(in, line);
  EXPECT_EQ(nlohmann::json::parse(line).at("dropped"), 7);
}

TEST(TokenId, IsNoSecret) {
  EXPECT_TRUE(IsTokenId("72de2ab20db8"));
  for (const char* other : {"", "72de2ab20db", "72DE2AB20DB8", "pft_Wh-JmrAAAA", "72de2ab20db8a"}) {
    EXPECT_FALSE(IsTokenId(other)) << other;
  }
}

}  // namespace
}  // namespace permafrost::access
