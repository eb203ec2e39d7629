// Runs the real shells and checks what they offer.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/fake_server.h"
#include "client/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

using testing::Contains;
using testing::IsSupersetOf;
using testing::Not;

struct ShellRun {
  std::string output;
  int code = -1;
};

ShellRun RunIn(const std::string& shell, const std::string& script) {
  ShellRun ran;
  // Passes the script in a file, because it may be longer than an argument can be.
  const TempDir dir;
  const std::string file = (dir.path() / "script").string();
  std::ofstream(file) << script << "\n";
  std::FILE* pipe = popen(absl::StrCat(shell, " <'", file, "'").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer{};
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) ran.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

bool HasShell(const std::string& shell) { return RunIn("sh", absl::StrCat("command -v ", shell)).code == 0; }

// Three contexts. The current one is called `current`, which is also a key of the configuration file.
class CompletionOfContextsTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CONFIG_HOME", dir_.path().c_str(), /*overwrite=*/1);
    for (const char* name : {"current", "prod", "staging.2"}) {
      const ProgramResult made =
          RunProgram({"context", "set", name, "127.0.0.1:1"}, {{"XDG_CONFIG_HOME", dir_.path().string()}});
      ASSERT_EQ(made.exit_code, 0) << made.err;
    }
  }
  void TearDown() override { unsetenv("XDG_CONFIG_HOME"); }

  const TempDir dir_;
};

// Returns what bash offers for the last of `words`, each offer without blanks. The first word runs `program`.
std::set<std::string> Offers(const std::string& words, const std::string& program = "false") {
  const std::vector<std::string> list = absl::StrSplit(words, ' ');
  const ShellRun ran =
      RunIn("bash 2>&1",
            // Raises the script's limit of one second per call, which is too short on a busy machine.
            absl::StrCat("source <(\"", PERMAFROST_PROGRAM,
                         "\" completion bash | sed 's/--timeout 1 /--timeout 60 /')\n", "COMP_WORDS=(", words,
                         list.back().empty() ? "''" : "", ")\n", "COMP_CWORD=", list.size() - 1, "\npermafrost() { \"",
                         program, "\" \"$@\"; }\n_permafrost\n", "printf '%s\\n' \"${COMPREPLY[@]}\""));
  EXPECT_EQ(ran.code, 0) << ran.output;
  const std::vector<std::string> offered = absl::StrSplit(ran.output, '\n', absl::SkipEmpty());
  return {offered.begin(), offered.end()};
}

TEST(BashCompletionTest, OffersWhatMayStandThere) {
  if (!HasShell("bash")) GTEST_SKIP() << "bash is absent";
  EXPECT_THAT(Offers("permafrost "), IsSupersetOf({"job", "dataset", "cache", "server", "context", "completion"}));
  EXPECT_EQ(Offers("permafrost job su"), (std::set<std::string>{"submit"}));
  EXPECT_THAT(Offers("permafrost job "), IsSupersetOf({"pause", "resume", "retry", "wait", "report", "compare"}));
  EXPECT_THAT(Offers("permafrost job "), Not(Contains("import")));
  EXPECT_EQ(Offers("permafrost job submit --optimizer ad"), (std::set<std::string>{"adam", "adamw"}));
  EXPECT_EQ(Offers("permafrost job submit --opt"), (std::set<std::string>{"--optimizer"}));
  EXPECT_EQ(Offers("permafrost job list --state pau"), (std::set<std::string>{"paused"}));
  EXPECT_THAT(Offers("permafrost job list --fil"), Contains("--filter"));
  // Global options may stand anywhere. The value of an option is not a command.
  EXPECT_EQ(Offers("permafrost job submit --outp"), (std::set<std::string>{"--output"}));
  EXPECT_EQ(Offers("permafrost --output js"), (std::set<std::string>{"json"}));
  EXPECT_EQ(Offers("permafrost --server job job su"), (std::set<std::string>{"submit"}));
  EXPECT_THAT(Offers("permafrost job report x -o /et"), Contains("/etc"));
  EXPECT_TRUE(Offers("permafrost job submit --id ").empty()) << "nobody knows";
}

// Bash splits a word at each equals sign and colon.
TEST(BashCompletionTest, ValuesMayFollowAnEqualsSign) {
  if (!HasShell("bash")) GTEST_SKIP() << "bash is absent";
  EXPECT_EQ(Offers("permafrost --output = js"), (std::set<std::string>{"json"}));
  EXPECT_EQ(Offers("permafrost --output ="), (std::set<std::string>{"json", "table"}));
  EXPECT_EQ(Offers("permafrost --server = job job su"), (std::set<std::string>{"submit"}));
  EXPECT_EQ(Offers("permafrost --server = job : 1 job su"), (std::set<std::string>{"submit"}));
  EXPECT_EQ(Offers("permafrost --server=job job su"), (std::set<std::string>{"submit"})) << "where bash parts nothing";
  EXPECT_TRUE(Offers("permafrost --server = 127.0.0.1 : j").empty()) << "a port is no command";
  EXPECT_TRUE(Offers("permafrost job sweep --vary optimizer = ad").empty()) << "no flag's value";
}

// A server with two jobs, a dataset and a program.
class CompletionOfNamesTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.jobs.list = [this](const v1::ListJobsRequest&, v1::ListJobsResponse& response) {
      for (const std::string& name : names_of_jobs_) {
        v1::Job& job = *response.add_jobs();
        job.set_name(name);
        job.mutable_spec()->set_dataset("datasets/zinc");
      }
      return grpc::Status::OK;
    };
    fake_.programs.list = [](const v1::ListProgramsRequest&, v1::ListProgramsResponse& response) {
      response.add_programs()->set_name("programs/net");
      return grpc::Status::OK;
    };
    fake_.datasets.list = [](const v1::ListDatasetsRequest&, v1::ListDatasetsResponse& response) {
      response.add_datasets()->set_name("datasets/zinc");
      return grpc::Status::OK;
    };
    fake_.Start();
  }
  // Returns the address as bash splits it into words.
  std::string PartedAddress() const { return absl::StrReplaceAll(fake_.address(), {{":", " : "}}); }

  std::vector<std::string> names_of_jobs_ = {"jobs/first", "jobs/second"};
  FakeServer fake_;
};

// A server that lists jobs with hostile names. A shell that expanded them would run commands.
class HostileNamesTest : public CompletionOfNamesTest {
 protected:
  void SetUp() override {
    // The path is passed in the environment, because names are cut at a slash.
    setenv("RAN", ran_.c_str(), /*overwrite=*/1);
    for (const char* name : {"jobs/$(touch${IFS}$RAN)", "jobs/`touch${IFS}$RAN`", "jobs/x/$(touch${IFS}$RAN)",
                             "jobs/x;touch${IFS}$RAN", "jobs/$RAN", "jobs/a b", "jobs/*", "jobs/-x", "jobs/"}) {
      names_of_jobs_.emplace_back(name);
    }
    CompletionOfNamesTest::SetUp();
  }

  const TempDir dir_;
  const std::filesystem::path ran_ = dir_.path() / "ran";
};

TEST_F(CompletionOfNamesTest, Bash) {
  if (!HasShell("bash")) GTEST_SKIP() << "bash is absent";
  const auto offers = [&](const std::string& words) {
    return Offers(absl::StrCat("permafrost --server ", fake_.address(), " ", words), PERMAFROST_PROGRAM);
  };
  EXPECT_EQ(offers("job show f"), (std::set<std::string>{"first"}));
  EXPECT_THAT(offers("job compare first "), IsSupersetOf({"first", "second"}));
  EXPECT_THAT(offers("cache show "), Contains("second"));
  EXPECT_EQ(offers("job submit --dataset "), (std::set<std::string>{"zinc"}));
  EXPECT_EQ(offers("job submit --init-from s"), (std::set<std::string>{"second"}));
  EXPECT_THAT(offers("dataset show "), Contains("zinc"));
  EXPECT_THAT(offers("dataset import "), Not(Contains("zinc"))) << "a new name";
  EXPECT_THAT(offers("program show "), Contains("net"));
  EXPECT_THAT(offers("program import "), Not(Contains("net"))) << "a new name";
  EXPECT_THAT(offers("job list "), Not(Contains("first")));
  // Nobody listens at this address, so there are no offers.
  EXPECT_TRUE(Offers("permafrost --server 127.0.0.1:1 job submit --dataset ", PERMAFROST_PROGRAM).empty());
}

TEST_F(CompletionOfNamesTest, BashFindsTheServerHoweverItIsParted) {
  if (!HasShell("bash")) GTEST_SKIP() << "bash is absent";
  for (const std::string& server :
       {absl::StrCat("--server=", fake_.address()), absl::StrCat("--server ", PartedAddress()),
        absl::StrCat("--server = ", PartedAddress())}) {
    const auto offers = [&](const std::string& words) {
      return Offers(absl::StrCat("permafrost ", server, " ", words), PERMAFROST_PROGRAM);
    };
    EXPECT_EQ(offers("job show f"), (std::set<std::string>{"first"})) << server;
    EXPECT_EQ(offers("job submit --dataset = "), (std::set<std::string>{"zinc"})) << server;
    EXPECT_EQ(offers("job submit --dataset = z"), (std::set<std::string>{"zinc"})) << server;
    EXPECT_TRUE(offers("job list --filter state = f").empty()) << server;
  }
  // The last --server on the line wins, as in the program.
  EXPECT_TRUE(Offers(absl::StrCat("permafrost --server ", fake_.address(), " --server = 127.0.0.1 : 1 job show f"),
                     PERMAFROST_PROGRAM)
                  .empty());
}

TEST_F(HostileNamesTest, Bash) {
  if (!HasShell("bash")) GTEST_SKIP() << "bash is absent";
  const std::string begin = absl::StrCat("permafrost --server ", fake_.address(), " ");
  EXPECT_EQ(Offers(begin + "job submit --init-from ", PERMAFROST_PROGRAM), (std::set<std::string>{"first", "second"}));
  Offers(begin + "job show ", PERMAFROST_PROGRAM);
  EXPECT_FALSE(std::filesystem::exists(ran_)) << "the shell ran what the server sent";
}

TEST_F(CompletionOfContextsTest, Bash) {
  if (!HasShell("bash")) GTEST_SKIP() << "bash is absent";
  const auto offers = [](const std::string& words) { return Offers("permafrost " + words, PERMAFROST_PROGRAM); };
  EXPECT_THAT(offers("context use "), IsSupersetOf({"current", "prod", "staging.2"}));
  EXPECT_EQ(offers("context use s"), (std::set<std::string>{"staging.2"}));
  EXPECT_EQ(offers("context remove c"), (std::set<std::string>{"current"}));
  EXPECT_EQ(offers("--context "), (std::set<std::string>{"current", "prod", "staging.2"}));
  EXPECT_EQ(offers("job list --context p"), (std::set<std::string>{"prod"}));
  EXPECT_EQ(offers("--context = p"), (std::set<std::string>{"prod"}));
  EXPECT_EQ(offers("--context none context use p"), (std::set<std::string>{"prod"}))
      << "the line names no known one yet";
  EXPECT_TRUE(offers("context set p").empty()) << "a new name";
}

// Returns what zsh offers for the last of `words`. It redefines the builtins that make offers, because their own
// output appears only on a terminal. The first word runs `program`.
std::string OffersOfZsh(const std::string& words, const std::string& program = "false") {
  const ShellRun ran = RunIn(
      "zsh -f 2>&1",
      absl::StrCat("compadd() { shift; print -r -- \"$@\" }\n_files() { print FILES }\ncompdef() { }\n", "source <(\"",
                   PERMAFROST_PROGRAM, "\" completion zsh | sed 's/--timeout 1 /--timeout 60 /')\n",
                   "permafrost() { \"", program, "\" \"$@\"; }\nwords=(", words, ")\nCURRENT=$#words\n_permafrost"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  return ran.output;
}

TEST(ZshCompletionTest, OffersWhatMayStandThere) {
  if (!HasShell("zsh")) GTEST_SKIP() << "zsh is absent";
  EXPECT_THAT(OffersOfZsh("permafrost job ''"), testing::StartsWith("submit sweep list"));
  EXPECT_EQ(OffersOfZsh("permafrost --server job job submit --optimizer ''"), "adam adamw sgd sparse-adam\n");
  EXPECT_EQ(OffersOfZsh("permafrost job report x -o ''"), "FILES\n");
}

TEST_F(CompletionOfNamesTest, Zsh) {
  if (!HasShell("zsh")) GTEST_SKIP() << "zsh is absent";
  const auto offers = [&](const std::string& words) {
    return OffersOfZsh(absl::StrCat("permafrost --server ", fake_.address(), " ", words), PERMAFROST_PROGRAM);
  };
  EXPECT_THAT(offers("job show ''"), testing::HasSubstr(" first second\n"));
  EXPECT_EQ(offers("job submit --dataset ''"), "zinc\n");
  EXPECT_THAT(offers("dataset import ''"), Not(testing::HasSubstr("zinc")));
  EXPECT_EQ(OffersOfZsh("permafrost --server 127.0.0.1:1 job submit --dataset ''", PERMAFROST_PROGRAM), "FILES\n");
  EXPECT_EQ(OffersOfZsh(absl::StrCat("permafrost --server=", fake_.address(), " job submit --dataset ''"),
                        PERMAFROST_PROGRAM),
            "zinc\n");
}

TEST_F(HostileNamesTest, Zsh) {
  if (!HasShell("zsh")) GTEST_SKIP() << "zsh is absent";
  EXPECT_EQ(OffersOfZsh(absl::StrCat("permafrost --server ", fake_.address(), " job submit --init-from ''"),
                        PERMAFROST_PROGRAM),
            "first second\n");
  EXPECT_FALSE(std::filesystem::exists(ran_)) << "the shell ran what the server sent";
}

TEST_F(CompletionOfContextsTest, Zsh) {
  if (!HasShell("zsh")) GTEST_SKIP() << "zsh is absent";
  EXPECT_THAT(OffersOfZsh("permafrost context use ''", PERMAFROST_PROGRAM),
              testing::HasSubstr(" current prod staging.2\n"));
  EXPECT_EQ(OffersOfZsh("permafrost --context ''", PERMAFROST_PROGRAM), "current prod staging.2\n");
}

// Returns what fish offers at the end of `line`. The first word runs `program`.
std::string OffersOfFish(const std::string& line, const std::string& program = "false") {
  const ShellRun ran =
      RunIn("fish --no-config 2>&1", absl::StrCat("\"", PERMAFROST_PROGRAM,
                                                  "\" completion fish | sed 's/--timeout 1 /--timeout 60 /' | source\n",
                                                  "function permafrost\n  \"", program, "\" $argv\nend\n",
                                                  "complete -C '", line, "' | string replace -r '\\t.*' ''\ntrue"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  return ran.output;
}

TEST(FishCompletionTest, OffersWhatMayStandThere) {
  if (!HasShell("fish")) GTEST_SKIP() << "fish is absent";
  EXPECT_EQ(OffersOfFish("permafrost job su"), "submit\n");
  EXPECT_EQ(OffersOfFish("permafrost --server job job submit --optimizer "), "adam\nadamw\nsgd\nsparse-adam\n");
  EXPECT_EQ(OffersOfFish("permafrost job list --fil"), "--filter\n");
}

TEST_F(CompletionOfNamesTest, Fish) {
  if (!HasShell("fish")) GTEST_SKIP() << "fish is absent";
  const auto offers = [&](const std::string& words) {
    return OffersOfFish(absl::StrCat("permafrost --server ", fake_.address(), " ", words), PERMAFROST_PROGRAM);
  };
  EXPECT_EQ(offers("job show "), "first\nsecond\n");
  EXPECT_EQ(offers("job show s"), "second\n");
  EXPECT_EQ(offers("job submit --dataset "), "zinc\n");
  EXPECT_EQ(offers("dataset import "), "");
  EXPECT_EQ(OffersOfFish("permafrost --server 127.0.0.1:1 job submit --dataset ", PERMAFROST_PROGRAM), "");
  EXPECT_EQ(
      OffersOfFish(absl::StrCat("permafrost --server=", fake_.address(), " job submit --dataset "), PERMAFROST_PROGRAM),
      "zinc\n");
}

TEST_F(CompletionOfContextsTest, Fish) {
  if (!HasShell("fish")) GTEST_SKIP() << "fish is absent";
  EXPECT_EQ(OffersOfFish("permafrost context use ", PERMAFROST_PROGRAM), "current\nprod\nstaging.2\n");
  EXPECT_EQ(OffersOfFish("permafrost --context s", PERMAFROST_PROGRAM), "staging.2\n");
}

TEST_F(HostileNamesTest, Fish) {
  if (!HasShell("fish")) GTEST_SKIP() << "fish is absent";
  EXPECT_EQ(OffersOfFish(absl::StrCat("permafrost --server ", fake_.address(), " job submit --init-from "),
                         PERMAFROST_PROGRAM),
            "first\nsecond\n");
  EXPECT_FALSE(std::filesystem::exists(ran_)) << "the shell ran what the server sent";
}

// Each script contains every command and option of --help, because both are made from the same tree.
TEST(CompletionTest, ScriptsAreWholeAndTheirShellsReadThem) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ProgramResult script = RunProgram({"completion", shell});
    EXPECT_EQ(script.exit_code, 0);
    for (const char* part : {"checkpoints", "jumping-knowledge", "remove-label", "census", "drain"}) {
      EXPECT_THAT(script.out, testing::HasSubstr(part)) << shell;
    }
    if (!HasShell(shell)) continue;
    const ShellRun read = RunIn(absl::StrCat(shell, " -n 2>&1"), script.out);
    EXPECT_EQ(read.code, 0) << shell << ": " << read.output;
    EXPECT_EQ(read.output, "") << shell;
  }
}

}  // namespace
}  // namespace permafrost::client
