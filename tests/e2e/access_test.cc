// Tests access rights: every method of every service, with every kind of token, over plain text, TLS and the unix
// socket.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "certificates.h"
#include "e2e/daemon.h"
#include "permafrost/v1/access.pb.h"
#include "permafrost/v1/enum_text.h"
#include "permafrost/v1/services.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

struct Method {
  std::string path;
  // The role just below the required one. Empty if there is none.
  std::string too_low;
  std::string enough;
};

// Returns every method of the contract, and reflection.
std::vector<Method> AllMethods() {
  std::vector<Method> methods = {{kReflection, "", "viewer"}};
  const auto& roles = *v1::Token::Role_descriptor();
  for (const auto* method : ContractMethods()) {
    const int least = method->options().GetExtension(v1::access).least_role();
    methods.push_back({.path = PathOf(*method),
                       .too_low = least == v1::Token::ROLE_VIEWER ? "" : EnumShortName(roles, least - 1),
                       .enough = EnumShortName(roles, least)});
  }
  return methods;
}

// Calls the method with an empty request.
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& path, const std::string& token,
                  absl::Duration limit = absl::Seconds(20)) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  grpc::CompletionQueue queue;
  const grpc::Slice nothing;
  const auto call = stub.PrepareUnaryCall(&context, path, grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return status;
}

std::string SocketOf(const fs::path& state) { return absl::StrCat("unix:", (state / "permafrost.sock").string()); }

// Runs the client over the unix socket, as a user who may open it.
Output AsOwner(const fs::path& state, std::vector<std::string> arguments) {
  std::vector<std::string> argv = {PERMAFROST, "--server", SocketOf(state)};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunCommand(argv);
}

struct TestToken {
  std::string name, secret;
};

TestToken MakeToken(const fs::path& state, const std::string& role, const std::string& expires = "") {
  std::vector<std::string> arguments = {"--output", "json", "server", "token", "create", "--role", role};
  if (!expires.empty()) arguments.insert(arguments.end(), {"--expires", expires});
  const Output out = AsOwner(state, arguments);
  EXPECT_EQ(out.code, 0) << out.err;
  const json made = json::parse(out.out, nullptr, /*allow_exceptions=*/false);
  return {made.value("name", ""), made.value("secret", "")};
}

std::string TextOf(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

unsigned ModeOf(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777U;
}

std::vector<json> AuditOf(const fs::path& state) {
  std::vector<json> lines;
  std::ifstream in(state / "audit.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(EndToEndAccess, EveryMethodRefusesWhoMayNotCallIt) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  Daemon daemon(state, ShippedSample(), {"--auth", "token"});
  ASSERT_TRUE(daemon.ready());
  std::map<std::string, std::string> secrets;
  for (const char* role : {"viewer", "operator", "admin"}) secrets[role] = MakeToken(state, role).secret;
  const TestToken revoked = MakeToken(state, "admin"), expired = MakeToken(state, "admin", "5s");
  ASSERT_EQ(AsOwner(state, {"server", "token", "revoke", revoked.name}).code, 0);
  absl::SleepFor(absl::Milliseconds(5100));
  const std::vector<Method> methods = AllMethods();
  ASSERT_GT(methods.size(), 35U);
  for (const Method& method : methods) {
    for (const std::string& token : {std::string(), std::string("pft_wrong"), revoked.secret, expired.secret}) {
      const grpc::Status status = Call(daemon.channel(), method.path, token);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method.path << status.error_message();
      EXPECT_TRUE(token.empty() || status.error_message().find(token) == std::string::npos) << method.path;
    }
    if (!method.too_low.empty()) {
      const grpc::Status status = Call(daemon.channel(), method.path, secrets[method.too_low]);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << method.path;
      EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("needs role ", method.enough)));
    }
    if (method.path.find("/Drain") != std::string::npos) continue;
    // Streams that wait for an event end at the deadline.
    const grpc::Status status = Call(daemon.channel(), method.path, secrets[method.enough], absl::Seconds(1));
    EXPECT_THAT(status.error_code(), Not(AnyOf(grpc::StatusCode::UNAUTHENTICATED, grpc::StatusCode::PERMISSION_DENIED)))
        << method.path << ": " << status.error_message();
  }
  EXPECT_TRUE(Call(daemon.channel(), kHealthCheck, "").ok()) << "probes have no token";
  EXPECT_EQ(HttpGet(daemon.metrics(), "/metrics"), "") << "and /metrics asks for one";
  const std::string page =
      TextOf(state.string() + ".stderr") + TextOf(state / "audit.jsonl") + TextOf(state / "tokens.json");
  for (const auto& [role, secret] : secrets) EXPECT_THAT(page, Not(HasSubstr(secret))) << role;
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(EndToEndAccess, TokensOutliveAKillAndFilesAreTheOwnersAlone) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  fs::create_directory(state);
  fs::permissions(state, fs::perms::all);
  auto daemon = std::make_unique<Daemon>(state, ShippedSample(), std::vector<std::string>{"--auth", "token"});
  ASSERT_TRUE(daemon->ready());
  EXPECT_THAT(TextOf(state.string() + ".stderr"), HasSubstr("could be opened by other users, mode 0777"));
  const TestToken token = MakeToken(state, "operator");
  KillAndRestart(daemon, state, ShippedSample(), {"--auth", "token"});
  EXPECT_TRUE(Call(daemon->channel(), "/permafrost.v1.ServerService/GetServerInfo", token.secret).ok());
  const fs::path file = dir.path() / "token";
  std::ofstream(file) << token.secret << "\n";
  const Output submitted =
      daemon->Client({"--token-file", file.string(), "dataset", "import", "zinc", ShippedSample().string()});
  EXPECT_EQ(submitted.code, 0) << submitted.err;
  EXPECT_EQ(daemon->Client({"dataset", "list"}).code, 4);
  EXPECT_EQ(daemon->Client({"--token-file", file.string(), "server", "drain"}).code, 4);
  EXPECT_EQ(ModeOf(state), 0700U);
  EXPECT_EQ(ModeOf(state / "permafrost.sock"), 0600U);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(state)) {
    EXPECT_EQ(ModeOf(entry.path()) & 077U, 0U) << entry.path();
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_GE(files, 5);
  std::vector<std::string> seen;
  for (const json& line : AuditOf(state)) {
    seen.push_back(absl::StrCat(line.at("caller").get<std::string>(), " ", line.at("method").get<std::string>(), " ",
                                line.value("resource", "-"), " ", line.at("code").get<std::string>()));
  }
  EXPECT_THAT(seen, testing::ElementsAre(
                        absl::StrCat("unix permafrost.v1.ServerService/CreateToken ", token.name, " OK"),
                        absl::StrCat(token.name, " permafrost.v1.DatasetService/ImportDataset datasets/zinc OK"),
                        absl::StrCat(token.name, " permafrost.v1.ServerService/Drain - PERMISSION_DENIED")));
  EXPECT_EQ(daemon->Stop(), 0);
  EXPECT_FALSE(fs::exists(state / "permafrost.sock"));
}

// grpcurl calls reflection first.
TEST(EndToEndAccess, ReflectionCanBeTurnedOffAndSoCanTheSocket) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  Daemon daemon(state, ShippedSample(), {"--no-reflection", "--socket", "off"});
  ASSERT_TRUE(daemon.ready());
  EXPECT_EQ(Call(daemon.channel(), kReflection, "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_FALSE(fs::exists(state / "permafrost.sock"));
  EXPECT_EQ(daemon.Client({"server", "info"}).code, 0);
}

class EndToEndTls : public testing::Test {
 protected:
  EndToEndTls() {
    authority_.WriteAuthority(Path("ca.pem"));
    authority_.Issue(Path("server"), "server");
  }
  std::string Path(const std::string& name) const { return (dir_.path() / name).string(); }
  std::vector<std::string> Flags(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--tls-cert", Path("server.pem"), "--tls-key", Path("server.key")});
    return more;
  }
  // Calls over a new connection with the certificate of `client`, or without one if that is empty.
  grpc::Status CallAs(const std::string& client, const Daemon& daemon, const std::string& path,
                      const std::string& token, absl::Duration limit) const {
    grpc::SslCredentialsOptions options{
        .pem_root_certs = TextOf(Path("ca.pem")), .pem_private_key = "", .pem_cert_chain = ""};
    if (!client.empty()) {
      options.pem_private_key = TextOf(Path(client + ".key"));
      options.pem_cert_chain = TextOf(Path(client + ".pem"));
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(daemon.grpc(), grpc::SslCredentials(options), arguments);
    return Call(channel, path, token, limit);
  }
  grpc::Status Info(const Daemon& daemon, const std::string& token, const std::string& client = "") const {
    return CallAs(client, daemon, "/permafrost.v1.ServerService/GetServerInfo", token, absl::Seconds(5));
  }
  // Returns what `openssl s_client` receives from /metrics.
  std::string Scrape(const Daemon& daemon, const std::string& token, const std::string& more = "") const {
    const std::string command =
        absl::StrCat("printf 'GET /metrics HTTP/1.1\\r\\nAuthorization: Bearer ", token,
                     "\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -ign_eof -connect ",
                     daemon.metrics(), " -CAfile ", Path("ca.pem"), " ", more, " 2>&1");
    return RunCommand({"sh", "-c", command}).out;
  }

  const TempDir dir_;
  const fs::path state_ = dir_.path() / "state";
  const TestAuthority authority_{"lab"};
};

TEST_F(EndToEndTls, ACertificateThatIsReplacedIsServedWithoutARestart) {
  Daemon daemon(state_, ShippedSample(), Flags({"--auth", "token"}));
  ASSERT_TRUE(daemon.ready());
  const std::string token = MakeToken(state_, "viewer").secret;
  EXPECT_TRUE(Info(daemon, token).ok());
  EXPECT_EQ(Info(daemon, "").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(Scrape(daemon, token), HasSubstr("permafrost_build_info"));
  EXPECT_THAT(Scrape(daemon, "pft_wrong"), HasSubstr("401 Unauthorized"));
  EXPECT_FALSE(Call(daemon.channel(), kHealthCheck, "", absl::Seconds(2)).ok()) << "plain text is not answered";

  // The certificate has the same names but another authority, so clients of the old authority no longer trust it.
  const TestAuthority other("other");
  other.Issue(Path("server"), "server");
  EXPECT_EQ(Info(daemon, token).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Scrape(daemon, token), Not(HasSubstr("permafrost_build_info")));
  other.WriteAuthority(Path("ca.pem"));
  EXPECT_TRUE(Info(daemon, token).ok());
  EXPECT_THAT(Scrape(daemon, token), HasSubstr("permafrost_build_info"));

  // A certificate is never served with a key that does not match it.
  std::ofstream(Path("server.key")) << "no key\n";
  EXPECT_TRUE(Info(daemon, token).ok());
  EXPECT_THAT(TextOf(state_.string() + ".stderr"), HasSubstr("the certificate that was read before stays"));

  // The certificate has expired. Clients refuse it, and the log says why.
  other.Issue(Path("server"), "server", -7'200, -3'600);
  EXPECT_EQ(Info(daemon, token).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Scrape(daemon, token), Not(HasSubstr("permafrost_build_info")));
  EXPECT_THAT(TextOf(state_.string() + ".stderr"), HasSubstr("which expired on"));
  other.Issue(Path("server"), "server");
  EXPECT_TRUE(Info(daemon, token).ok());
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST_F(EndToEndTls, ClientCertificatesAreAskedForAndHaveARole) {
  authority_.Issue(Path("alice"), "alice");
  authority_.Issue(Path("late"), "late", -7'200, -3'600);
  TestAuthority("stranger").Issue(Path("mallory"), "mallory");
  Daemon daemon(state_, ShippedSample(),
                Flags({"--auth", "token", "--tls-client-ca", Path("ca.pem"), "--tls-client-role", "viewer"}));
  ASSERT_TRUE(daemon.ready());
  const std::string token = MakeToken(state_, "operator").secret;
  EXPECT_TRUE(Info(daemon, "", "alice").ok());
  EXPECT_TRUE(Info(daemon, token, "alice").ok());
  EXPECT_EQ(Info(daemon, "pft_wrong", "alice").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  for (const char* refused : {"", "late", "mallory"}) {
    EXPECT_EQ(Info(daemon, token, refused).error_code(), grpc::StatusCode::UNAVAILABLE) << refused;
  }
  const std::string certificate = absl::StrCat("-cert ", Path("alice.pem"), " -key ", Path("alice.key"));
  EXPECT_THAT(Scrape(daemon, token, certificate), HasSubstr("permafrost_build_info"));
  EXPECT_THAT(Scrape(daemon, token), Not(HasSubstr("permafrost_build_info")));
  EXPECT_THAT(Scrape(daemon, token, absl::StrCat("-cert ", Path("late.pem"), " -key ", Path("late.key"))),
              Not(HasSubstr("permafrost_build_info")));
  // The client program works with a certificate, and the audit log has the certificate's name.
  const std::vector<std::string> tls = {"--ca-cert",       Path("ca.pem"), "--client-cert",
                                        Path("alice.pem"), "--client-key", Path("alice.key")};
  const auto as_alice = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), tls.begin(), tls.end());
    return daemon.Client(arguments);
  };
  EXPECT_EQ(as_alice({"server", "info"}).code, 0);
  const Output drained = as_alice({"server", "drain"});
  EXPECT_EQ(drained.code, 4);
  EXPECT_THAT(drained.err, HasSubstr("needs role admin"));
  ASSERT_FALSE(AuditOf(state_).empty());
  EXPECT_THAT(AuditOf(state_).back().at("caller").get<std::string>(), HasSubstr("alice"));
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST_F(EndToEndTls, EveryMethodRefusesACertificateThatIsExpiredOrStrange) {
  authority_.Issue(Path("alice"), "alice");
  authority_.Issue(Path("late"), "late", -7'200, -3'600);
  TestAuthority("stranger").Issue(Path("mallory"), "mallory");
  Daemon daemon(state_, ShippedSample(), Flags({"--auth", "token", "--tls-client-ca", Path("ca.pem")}));
  ASSERT_TRUE(daemon.ready());
  const std::string admin = MakeToken(state_, "admin").secret;
  const size_t audited = AuditOf(state_).size();
  std::vector<Method> methods = AllMethods();
  ASSERT_GT(methods.size(), 35U);
  methods.push_back({.path = kHealthCheck, .too_low = "", .enough = ""});
  for (const Method& method : methods) {
    for (const char* refused : {"", "late", "mallory"}) {
      const grpc::Status status = CallAs(refused, daemon, method.path, admin, absl::Seconds(20));
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE)
          << method.path << " by \"" << refused << "\": " << status.error_message();
    }
  }
  EXPECT_EQ(AuditOf(state_).size(), audited) << "none came as far as that";
  EXPECT_TRUE(Info(daemon, admin, "alice").ok()) << "it was not drained, and good certificates are served";
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
