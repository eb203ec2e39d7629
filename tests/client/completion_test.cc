// What the shells offer, by the shells themselves.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
  std::FILE* pipe = popen(absl::StrCat(shell, " <<'EOT'\n", script, "\nEOT\n").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer{};
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) ran.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

bool HasShell(const std::string& shell) { return RunIn("sh", absl::StrCat("command -v ", shell)).code == 0; }

// What bash offers for the last of the words; each without blanks.
std::set<std::string> Offers(const std::string& words) {
  const std::vector<std::string> list = absl::StrSplit(words, ' ');
  const ShellRun ran =
      RunIn("bash 2>&1", absl::StrCat("source <(\"", PERMAFROST_PROGRAM, "\" completion bash)\n", "COMP_WORDS=(", words,
                                      list.back().empty() ? "''" : "", ")\n", "COMP_CWORD=", list.size() - 1,
                                      "\n_permafrost\n", "printf '%s\\n' \"${COMPREPLY[@]}\""));
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
  // Global options stand everywhere; the value of one is no command.
  EXPECT_EQ(Offers("permafrost job submit --outp"), (std::set<std::string>{"--output"}));
  EXPECT_EQ(Offers("permafrost --output js"), (std::set<std::string>{"json"}));
  EXPECT_EQ(Offers("permafrost --server job job su"), (std::set<std::string>{"submit"}));
  EXPECT_THAT(Offers("permafrost job report x -o /et"), Contains("/etc"));
  EXPECT_TRUE(Offers("permafrost job submit --id ").empty()) << "nobody knows";
}

// zsh with its own words for offering, which a terminal alone would show.
TEST(ZshCompletionTest, OffersWhatMayStandThere) {
  if (!HasShell("zsh")) GTEST_SKIP() << "zsh is absent";
  const auto offers = [](const std::string& words) {
    const ShellRun ran =
        RunIn("zsh -f 2>&1",
              absl::StrCat("compadd() { shift; print -r -- \"$@\" }\n_files() { print FILES }\ncompdef() { }\n",
                           "source <(\"", PERMAFROST_PROGRAM, "\" completion zsh)\nwords=(", words,
                           ")\nCURRENT=$#words\n_permafrost"));
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.output;
  };
  EXPECT_THAT(offers("permafrost job ''"), testing::StartsWith("submit sweep list"));
  EXPECT_EQ(offers("permafrost --server job job submit --optimizer ''"), "adam adamw sgd\n");
  EXPECT_EQ(offers("permafrost job report x -o ''"), "FILES\n");
}

TEST(FishCompletionTest, OffersWhatMayStandThere) {
  if (!HasShell("fish")) GTEST_SKIP() << "fish is absent";
  const auto offers = [](const std::string& line) {
    const ShellRun ran =
        RunIn("fish --no-config 2>&1", absl::StrCat("\"", PERMAFROST_PROGRAM, "\" completion fish | source\n",
                                                    "complete -C '", line, "' | string replace -r '\\t.*' ''"));
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.output;
  };
  EXPECT_EQ(offers("permafrost job su"), "submit\n");
  EXPECT_EQ(offers("permafrost --server job job submit --optimizer "), "adam\nadamw\nsgd\n");
  EXPECT_EQ(offers("permafrost job list --fil"), "--filter\n");
}

// Every command and option of --help is in each script: they are made of the same tree.
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
