#include "jobs/job_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/status.h"

namespace permafrost::jobs {
namespace {

TEST(PageTokenTest, NamesThePlaceForTheSameStates) {
  for (const int64_t sequence : {int64_t{1}, int64_t{123456}, std::numeric_limits<int64_t>::max()}) {
    const std::string token = MakePageToken(sequence, {{JobState::kQueued, JobState::kFailed}, "priority = 1"});
    const auto back =
        ParsePageToken(token, {{JobState::kFailed, JobState::kQueued, JobState::kFailed}, "priority = 1"});
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, sequence);
  }
}

TEST(PageTokenTest, AnythingElseIsRefused) {
  const std::string token = MakePageToken(7, {});
  std::string changed = token;
  changed[1] = changed[1] == 'A' ? 'B' : 'A';
  const struct {
    const char* why;
    std::string token;
    JobQuery query;
  } kCases[] = {
      {"made for all states", token, {{JobState::kQueued}, ""}},
      {"made without a filter", token, {{}, "priority = 1"}},
      {"made for another filter", MakePageToken(7, {{}, "priority = 2"}), {{}, "priority = 1"}},
      {"made for other states", MakePageToken(7, {{JobState::kFailed}, ""}), {{JobState::kQueued}, ""}},
      {"no token at all", "hello", {}},
      {"not base64", "%%%", {}},
      {"a character changed", changed, {}},
      {"cut", token.substr(0, token.size() - 2), {}},
      {"something after it", token + "AAAA", {}},
      {"the number alone", absl::WebSafeBase64Escape("7"), {}},
  };
  for (const auto& c : kCases) {
    const auto parsed = ParsePageToken(c.token, c.query);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << c.why;
    const auto violations = GetViolations(parsed.status());
    ASSERT_EQ(violations.size(), 1u) << c.why;
    EXPECT_EQ(violations[0].field, "page_token") << c.why;
  }
}

}  // namespace
}  // namespace permafrost::jobs
