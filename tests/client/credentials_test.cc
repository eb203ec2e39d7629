#include "client/credentials.h"

#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "client/contexts.h"
#include "client/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

using testing::HasSubstr;
using testing::Not;

class CredentialsTest : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& content) const {
    const std::string path = (dir_.path() / name).string();
    std::ofstream(path) << content;
    return path;
  }
  const TempDir dir_;
};

TEST_F(CredentialsTest, AFlagWinsOverTheContext) {
  const std::string flag = File("flag", "  pft_flag\n"), context = File("context", "pft_context\n");
  EXPECT_EQ(ReadCredentials({.token_file = flag}, {.token_file = context}, "127.0.0.1:1")->token, "pft_flag");
  EXPECT_EQ(ReadCredentials({}, {.token_file = context}, "127.0.0.1:1")->token, "pft_context");
  const absl::StatusOr<Credentials> none = ReadCredentials({}, {}, "example.org:1");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->token, "");
  EXPECT_FALSE(none->tls);
  EXPECT_TRUE(ReadCredentials({.ca_cert = flag}, {}, "example.org:1")->tls);
  EXPECT_TRUE(ReadCredentials({.tls = true}, {}, "example.org:1")->tls);
}

TEST_F(CredentialsTest, ATokenDoesNotTravelInPlainText) {
  const std::string token = File("token", "pft_secret\n");
  for (const char* here : {"127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/run/x.sock"}) {
    EXPECT_TRUE(ReadCredentials({.token_file = token}, {}, here).ok()) << here;
  }
  for (const char* away : {"example.org:1", "10.0.0.1:1", "0.0.0.0:1", "dns:///127.0.0.1:1", "localhost"}) {
    const absl::Status status = ReadCredentials({.token_file = token}, {}, away).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << away;
    EXPECT_THAT(std::string(status.message()), HasSubstr("plain text")) << away;
    EXPECT_TRUE(ReadCredentials({.token_file = token, .tls = true}, {}, away).ok()) << away;
  }
}

TEST_F(CredentialsTest, WhatIsWrongIsNamedAndNotRepeated) {
  const std::string file = File("token", "pft_one pft_two\n"), empty = File("empty", " \n");
  const struct {
    CredentialFiles files;
    std::string says;
  } kCases[] = {{{.token_file = "/no/such"}, "--token-file"}, {{.token_file = file}, "holds no token"},
                {{.token_file = empty}, "holds no token"},    {{.ca_cert = "/no/such"}, "--ca-cert"},
                {{.client_cert = file}, "--client-key"},      {{.client_key = file}, "--client-cert"}};
  for (const auto& c : kCases) {
    const absl::Status status = ReadCredentials(c.files, {}, "127.0.0.1:1").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("pft_one")));
  }
}

TEST_F(CredentialsTest, AContextHoldsPathsAndNoToken) {
  const std::string token = File("token", "pft_secret\n");
  const std::string config = (dir_.path() / "config.json").string();
  const Contexts contexts{.servers = {{"lab", "lab:1"}, {"home", "home:2"}},
                          .current = "lab",
                          .credentials = {{"lab", {.token_file = token, .ca_cert = "/ca.pem", .tls = true}}}};
  ASSERT_TRUE(WriteContexts(config, contexts).ok());
  const absl::StatusOr<Contexts> read = ReadContexts(config);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->credentials, contexts.credentials);
  EXPECT_EQ(ResolveCredentials({}, *read).token_file, token);
  EXPECT_EQ(ResolveCredentials({.server = "", .context = "home", .environment = ""}, *read), CredentialFiles());
  EXPECT_EQ(ResolveCredentials({.server = "x:1", .context = "", .environment = ""}, *read), CredentialFiles())
      << "another server does not get the context's token";
  EXPECT_EQ(ResolveCredentials({.server = "", .context = "", .environment = "x:1"}, *read), CredentialFiles());
  // The program itself writes the path of the token file, and not the token.
  const std::map<std::string, std::string> environment{{"XDG_CONFIG_HOME", dir_.path().string()}};
  ASSERT_EQ(RunProgram({"context", "set", "a", "a:1", "--token-file", token}, environment).exit_code, 0);
  std::ifstream in(dir_.path() / "permafrost" / "config.json");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, HasSubstr(token));
  EXPECT_THAT(text, Not(HasSubstr("pft_secret")));
  const ProgramResult refused = RunProgram({"job", "list"}, environment);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("plain text"));
}

}  // namespace
}  // namespace permafrost::client
