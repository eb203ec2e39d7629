// Tests that client/REFERENCE.md agrees with the program's help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "spec/loss.h"
#include "spec/model.h"

namespace permafrost::client {
namespace {

using ::testing::HasSubstr;

constexpr char kReference[] = PERMAFROST_SOURCE_DIR "/client/REFERENCE.md";

struct Ran {
  std::string output;
  int code = -1;
};

Ran RunShell(const std::string& command) {
  Ran ran;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer{};
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) ran.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

TEST(Reference, IsWhatHelpSays) {
  if (RunShell("python3 --version").code != 0) GTEST_SKIP() << "python3, which compares them, is absent";
  const Ran check = RunShell(PERMAFROST_SOURCE_DIR "/client/make-reference --check " PERMAFROST_PROGRAM " " +
                             std::string(kReference));
  EXPECT_EQ(check.code, 0) << check.output;
}

TEST(Reference, HasEveryModelAndLoss) {
  std::ifstream file(kReference);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::string models, losses;
  for (const auto& [value, name] : spec::kArchitectureNames.rows)
    models += (models.empty() ? "" : "|") + std::string(name);
  for (const auto& [value, name] : spec::kLossNames.rows) losses += (losses.empty() ? "" : "|") + std::string(name);
  EXPECT_THAT(text, HasSubstr("--architecture " + models));
  EXPECT_THAT(text, HasSubstr("--loss " + losses));
}

}  // namespace
}  // namespace permafrost::client
