#include "client/contexts.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(ResolveServerTest, TheNearestThatIsGivenWins) {
  Contexts contexts{.servers = {{"lab", "lab:1"}, {"home", "home:2"}}, .current = "home"};
  const struct {
    const char* why;
    ServerWish wish;
    const char* want;
  } kCases[] = {
      {"the current context", {"", "", ""}, "home:2"},
      {"the environment before the current context", {"", "", "env:3"}, "env:3"},
      {"--context before the environment", {"", "lab", "env:3"}, "lab:1"},
      {"--server before all", {"flag:4", "lab", "env:3"}, "flag:4"},
  };
  for (const auto& c : kCases) EXPECT_EQ(*ResolveServer(c.wish, contexts, "default:5"), c.want) << c.why;
  contexts.current.clear();
  EXPECT_EQ(*ResolveServer({}, contexts, "default:5"), "default:5");
  const auto unknown = ResolveServer({"", "labb", ""}, contexts, "default:5");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("'labb' is no context; known: home, lab"));
  contexts.current = "gone";
  EXPECT_FALSE(ResolveServer({}, contexts, "default:5").ok())
      << "a command must not go to another server than is meant";
}

class ContextCommandTest : public testing::Test {
 protected:
  ProgramResult Run(const std::vector<std::string>& arguments, std::map<std::string, std::string> environment = {}) {
    environment["XDG_CONFIG_HOME"] = dir_.path().string();
    return RunProgram(arguments, environment);
  }
  std::filesystem::path File() const { return dir_.path() / "permafrost" / "config.json"; }
  void Write(const std::string& text) const {
    std::filesystem::create_directories(File().parent_path());
    std::ofstream(File()) << text;
  }
  json Read() const {
    std::ifstream in(File());
    return json::parse(in);
  }

  const TempDir dir_;
};

TEST_F(ContextCommandTest, ALinkInPlaceOfTheFileStaysALink) {
  const TempDir elsewhere;
  const std::filesystem::path file = elsewhere.path() / "mine.json";
  std::filesystem::create_directories(File().parent_path());
  std::filesystem::create_symlink(file, File());
  ASSERT_EQ(Run({"context", "set", "lab", "lab:7433"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(File()));
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(Read()["current_context"], "lab");
}

TEST_F(ContextCommandTest, SetUseListAndRemove) {
  EXPECT_THAT(Run({"context", "list"}).out, HasSubstr("no contexts"));
  EXPECT_EQ(Run({"context", "set", "lab", "lab:7433"}).out, "CURRENT  CONTEXT  SERVER\n*        lab      lab:7433\n");
  ASSERT_EQ(Run({"context", "set", "home", "[::1]:7433"}).exit_code, 0);
  EXPECT_EQ(Read()["current_context"], "lab") << "the first one stays the current one";
  ASSERT_EQ(Run({"context", "use", "home"}).exit_code, 0);
  EXPECT_EQ(Read()["current_context"], "home");
  const json list = json::parse(Run({"context", "list", "--output", "json"}).out);
  EXPECT_EQ(list, json::parse(R"({"current": "home", "contexts": {"lab": "lab:7433", "home": "[::1]:7433"}})"));
  ASSERT_EQ(Run({"context", "remove", "home"}).exit_code, 0);
  EXPECT_EQ(Read()["current_context"], "");
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{{"context", "use", "home"},
                                                                                   {"context", "remove", "home"},
                                                                                   {"context", "set", "a/b", "x:1"},
                                                                                   {"context", "set", "a", "no-port"},
                                                                                   {"context", "set", "a", ":1"},
                                                                                   {"context"}}) {
    EXPECT_EQ(Run(bad).exit_code, 2) << bad.back();
  }
}

TEST_F(ContextCommandTest, ACommandGoesToTheServerThatIsMeant) {
  FakeServer fake;
  fake.jobs.create = [](const v1::CreateJobRequest&, v1::Job& job) {
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake.Start();
  ASSERT_EQ(Run({"context", "set", "other", "127.0.0.1:1"}).exit_code, 0);
  ASSERT_EQ(Run({"context", "set", "fake", fake.address()}).exit_code, 0);
  const std::vector<std::string> submit{"job", "submit", "--dataset", "zinc"};
  const ProgramResult unreachable = Run(submit);
  EXPECT_EQ(unreachable.exit_code, 3);
  EXPECT_THAT(unreachable.err, HasSubstr("127.0.0.1:1"));
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), submit.begin(), submit.end());
    return flags;
  };
  EXPECT_EQ(Run(with({"--context", "fake"})).out,
            "job zinc-1 queued; watch it with: permafrost --context fake job watch zinc-1\n");
  EXPECT_EQ(Run(submit, {{"PERMAFROST_SERVER", fake.address()}}).out,
            "job zinc-1 queued; watch it with: permafrost job watch zinc-1\n");
  EXPECT_EQ(Run(with({"--server", fake.address()})).exit_code, 0);
  ASSERT_EQ(Run({"context", "use", "fake"}).exit_code, 0);
  EXPECT_EQ(Run(submit).out, "job zinc-1 queued; watch it with: permafrost job watch zinc-1\n");
  const ProgramResult unknown = Run(with({"--context", "none"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.err, "permafrost: --context: 'none' is no context; known: fake, other\n");
  EXPECT_EQ(Run(with({"--context", "fake", "--server", "x:1"})).exit_code, 2);
}

TEST_F(ContextCommandTest, ABadFileIsNamedAndDoesNotStandInTheWayOfAnAddress) {
  for (const char* text :
       {"{", "[]", R"({"contexts": 3})", R"({"contexts": {"a": "x:1"}})", R"({"current_context": 1})"}) {
    Write(text);
    const ProgramResult bad = Run({"job", "list"});
    EXPECT_EQ(bad.exit_code, 2) << text;
    EXPECT_THAT(bad.err, HasSubstr(File().string())) << text;
    EXPECT_EQ(Run({"--server", "127.0.0.1:1", "job", "list"}).exit_code, 3) << text;
    EXPECT_EQ(Run({"context", "set", "a", "x:1"}).exit_code, 2) << "it is not written over: " << text;
    EXPECT_EQ(Run({"completion", "bash"}).exit_code, 0) << text;
  }
}

TEST_F(ContextCommandTest, WhatOthersWroteIntoTheFileStays) {
  Write(R"({"theme": "dark", "contexts": {"a": {"server": "x:1"}}})");
  ASSERT_EQ(Run({"context", "use", "a"}).exit_code, 0);
  EXPECT_EQ(Read()["theme"], "dark");
}

}  // namespace
}  // namespace permafrost::client
