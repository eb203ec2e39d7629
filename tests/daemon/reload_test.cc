#include "daemon/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "temp_dir.h"

namespace permafrost {
namespace {

using testing::HasSubstr;

class ReloadTest : public testing::Test {
 protected:
  // Returns what a reload says; `options` is then as after it.
  std::string ReloadWith(const ParsedOptions& read, Options& options) {
    testing::internal::CaptureStdout();
    Reload([&] { return read; }, {.tokens = *tokens_, .certificates = nullptr, .drain = drain_}, options);
    return testing::internal::GetCapturedStdout();
  }

  const TempDir dir_;
  const std::filesystem::path path_ = dir_.path() / "tokens.json";
  std::unique_ptr<access::TokenStore> tokens_ = *access::TokenStore::Open(path_);
  DrainSignal drain_{absl::Hours(1)};
};

TEST_F(ReloadTest, WhatCanChangeDoesAndTheRestIsToldOf) {
  Options options, next;
  next.exit_timeout = absl::Seconds(7000);
  next.listen = "127.0.0.1:1";
  const std::vector<OptionChange> changes = ChangesBetween(options, next);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].name, "listen");
  EXPECT_FALSE(changes[0].reloads);
  EXPECT_EQ(changes[1].name, "exit-timeout");
  EXPECT_EQ(changes[1].to, "7000");
  EXPECT_TRUE(changes[1].reloads);
  const std::string told = ReloadWith({.options = next, .text = "", .exit_code = 0}, options);
  EXPECT_THAT(told, HasSubstr("exit-timeout 25 -> 7000"));
  EXPECT_THAT(told, HasSubstr("listen 127.0.0.1:7433 -> 127.0.0.1:1: takes effect at the next start"));
  EXPECT_EQ(options.exit_timeout, absl::Seconds(7000));
  EXPECT_EQ(options.listen, Options().listen);
  drain_.Request("now");
  EXPECT_LE(drain_.TimeLeft(), absl::Seconds(7000));
}

TEST_F(ReloadTest, BadOptionsLeaveTheOldOnes) {
  Options options;
  const std::string told = ReloadWith(
      {.options = std::nullopt, .text = "permafrostd: f: exit-timeout \"x\": accepted: seconds\n", .exit_code = 2},
      options);
  EXPECT_THAT(told, HasSubstr("options stay as they were: f: exit-timeout \"x\""));
  EXPECT_EQ(options.exit_timeout, Options().exit_timeout);
}

TEST_F(ReloadTest, TokensAreReadAgainAndABadFileLeavesThem) {
  Options options;
  const auto made = tokens_->Create(access::Role::kViewer, "one", absl::InfiniteFuture());
  ASSERT_TRUE(made.ok()) << made.status();
  std::ofstream(path_) << "no JSON";
  EXPECT_THAT(ReloadWith({.options = options, .text = "", .exit_code = 0}, options),
              HasSubstr("tokens stay as they were"));
  EXPECT_TRUE(tokens_->Find(made->secret).has_value());
  std::filesystem::remove(path_);
  EXPECT_THAT(ReloadWith({.options = options, .text = "", .exit_code = 0}, options), HasSubstr("0 tokens"));
  EXPECT_FALSE(tokens_->Find(made->secret).has_value()) << "the file has it no more";
}

}  // namespace
}  // namespace permafrost
