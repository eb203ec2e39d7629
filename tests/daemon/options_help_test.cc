// Tests the texts of `permafrostd --help` and `--version`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "daemon/parse_options.h"

namespace permafrost {
namespace {

using ::testing::HasSubstr;

TEST(OptionsHelp, HelpNamesEveryFlagItsVariableAndDefault) {
  const ParsedOptions parsed = Parse({"--help"});
  EXPECT_FALSE(parsed.options.has_value());
  EXPECT_EQ(parsed.exit_code, 0);
  for (const char* part : {"--listen", "PERMAFROST_LISTEN; default 127.0.0.1:7433", "--metrics", "127.0.0.1:9464",
                           "--state-dir", "./permafrost-state", "--device", "--threads", "--import-root", "--insecure",
                           "--config", "PERMAFROST_CONFIG", "--exit-timeout SECONDS", "--cache-policy NAME",
                           "PERMAFROST_FREEZE_AT; default 0", "--on-miss NAME", "--shapes NAME", "Exit codes", "143"}) {
    EXPECT_THAT(parsed.text, HasSubstr(part));
  }
}

// The help text comes from the struct, so setting each variable to its printed default changes nothing.
TEST(OptionsHelp, HelpTellsTheDefaultsOfTheStruct) {
  const std::string help = Parse({"--help"}).text;
  const std::regex default_of(R"(\((PERMAFROST_[A-Z_]+); default ([^)]+)\))");
  Variables told;
  for (std::sregex_iterator it(help.begin(), help.end(), default_of), end; it != end; ++it) told[(*it)[1]] = (*it)[2];
  size_t variables = 0;
  for (size_t at = help.find("(PERMAFROST_"); at != std::string::npos; at = help.find("(PERMAFROST_", at + 1)) {
    ++variables;
  }
  EXPECT_EQ(told.size(), variables - 1) << "all but --config have a default";
  const Options got = Parsed({}, told);
  const Options want;
  EXPECT_EQ(got.listen, want.listen);
  EXPECT_EQ(got.metrics, want.metrics);
  EXPECT_EQ(got.state_dir, want.state_dir);
  EXPECT_EQ(got.device, want.device);
  EXPECT_EQ(got.threads, want.threads);
  EXPECT_EQ(got.import_roots, want.import_roots);
  EXPECT_EQ(got.quarantine_unknown_jobs, want.quarantine_unknown_jobs);
  EXPECT_EQ(got.insecure, want.insecure);
  EXPECT_EQ(got.exit_timeout, want.exit_timeout);
  EXPECT_EQ(got.graph_cache, want.graph_cache);
}

// client/make-reference writes the help into the reference.
TEST(OptionsHelp, TheReferenceHasTheHelp) {
  std::ifstream file(PERMAFROST_SOURCE_DIR "/server/daemon/REFERENCE.md");
  const std::string reference{std::istreambuf_iterator<char>(file), {}};
  const std::string help = std::regex_replace(Parse({"--help"}).text, std::regex(" +\n"), "\n");
  EXPECT_NE(reference.find(help.substr(0, help.find_last_not_of('\n'))), std::string::npos)
      << "server/daemon/REFERENCE.md is not what permafrostd --help says; rewrite it with: client/make-reference";
}

TEST(OptionsHelp, VersionIsOneLine) {
  const ParsedOptions parsed = Parse({"--version"});
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_THAT(parsed.text, ::testing::MatchesRegex("permafrostd [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

}  // namespace
}  // namespace permafrost
