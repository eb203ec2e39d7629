#include "jobs/job_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

Job SampleJob() {
  Job job;
  job.id = JobId("job-a");
  job.spec.train.dataset = DatasetId("zinc");
  job.spec.priority = 5;
  job.labels = {{"team", "gnn"}, {"note", "a \"b\" c"}};
  job.state = JobState::kRunning;
  job.create_time = absl::FromUnixSeconds(1'700'000'000);  // 2023-11-14T22:13:20Z
  return job;
}

TEST(JobFilterTest, TakesTheJobsForWhichItHolds) {
  const struct {
    const char* filter;
    bool want;
  } kCases[] = {
      {"", true},
      {"  \t ", true},
      {"state = RUNNING", true},
      {"state=running", true},
      {"state = STATE_RUNNING", true},
      {"state = WARMING_UP", false},
      {"NOT state = STATE_WARMING_UP", true},
      {"state != RUNNING", false},
      {"state = QUEUED", false},
      {"name = \"jobs/job-a\"", true},
      {"name = job-a", true},
      {"dataset = \"datasets/zinc\"", true},
      {"dataset = 'zinc'", true},
      {"dataset != datasets/zinc", false},
      {"priority = 5", true},
      {"priority != 5", false},
      {"priority < 5", false},
      {"priority <= 5", true},
      {"priority > -7", true},
      {"priority >= 6", false},
      {"create_time = \"2023-11-14T22:13:20Z\"", true},
      {"create_time >= 2023-11-14T23:13:20+01:00", true},
      {"create_time < \"2023-11-14T22:13:20Z\"", false},
      {"create_time > \"2023-11-14T22:13:19.9Z\"", true},
      {"labels.team = \"gnn\"", true},
      {"labels.team != \"gnn\"", false},
      {"labels.team:gnn", true},
      {"labels.team:*", true},
      {"labels:team", true},
      {"labels.note = \"a \\\"b\\\" c\"", true},
      {"labels.note = 'a \"b\" c'", true},
      {"labels.team = \"*\"", false},
      {"labels.team : \"*\"", false},
      // Fields that the job does not have.
      {"labels.owner = x", false},
      {"labels.owner != x", false},
      {"NOT labels.owner = x", true},
      {"labels.owner:*", false},
      {"labels:owner", false},
      {"end_time < \"2100-01-01T00:00:00Z\"", false},
      {"NOT end_time < \"2100-01-01T00:00:00Z\"", true},
      // Words, and how they bind.
      {"state = RUNNING AND labels.team = \"gnn\" AND dataset = \"datasets/zinc\"", true},
      {"state = RUNNING AND priority > 5", false},
      {"state = QUEUED OR priority = 5", true},
      {"state = QUEUED OR priority = 6", false},
      {"NOT state = QUEUED", true},
      {"NOT(state = RUNNING)", false},
      {"NOT state = QUEUED AND priority = 5", true},
      // AIP-160: OR binds closer. The other way round it would hold.
      {"priority = 5 OR state = RUNNING AND priority = 6", false},
      {"(priority = 5) OR (state = RUNNING AND priority = 6)", true},
      {"((((state = RUNNING))))", true},
  };
  const Job job = SampleJob();
  for (const auto& c : kCases) {
    const auto filter = JobFilter::Parse(c.filter);
    ASSERT_TRUE(filter.ok()) << c.filter << ": " << filter.status();
    EXPECT_EQ(filter->Matches(job), c.want) << c.filter;
  }
}

TEST(JobFilterTest, WhatIsNoFilterIsRefusedWithItsPlace) {
  const struct {
    std::string filter;
    std::vector<const char*> says;
  } kCases[] = {
      {"colour = red", {"at character 1, \"colour = red\"", "name, state, dataset, labels.KEY, priority"}},
      {"state", {"at character 6, the end", "= !="}},
      {"state = ", {"at character 9, the end", "a value"}},
      {"state = SLEEPING", {"at character 9", "QUEUED, RUNNING", "PAUSED"}},
      {"state > RUNNING", {"at character 7", "one of = !="}},
      {"state : RUNNING", {"at character 7"}},
      {"dataset < zinc", {"at character 9"}},
      {"state.x = 1", {"at character 1"}},
      {"priority = high", {"at character 12", "a whole number"}},
      {"priority = 99999999999", {"at character 12"}},
      {"priority:5", {"at character 9", "one of = != < <= > >="}},
      {"create_time > yesterday", {"at character 15", "2026-01-31T13:00:00Z"}},
      {"labels = x", {"at character 8", ".KEY or :KEY"}},
      {"labels.Team = x", {"at character 8", "[a-z][a-z0-9_-]{0,62}"}},
      {"labels:9", {"at character 8", "[a-z]"}},
      {"labels.team < x", {"at character 13", "one of = != :"}},
      {"labels.team = \"x", {"at character 15", "a closing \""}},
      {"state = RUNNING priority = 1", {"at character 17", "AND, OR or the end"}},
      {"state = RUNNING and priority = 1", {"at character 17"}},
      {"state = RUNNING AND", {"at character 20, the end", "a field"}},
      {"(state = RUNNING", {"at character 17, the end", ")"}},
      {"state = RUNNING)", {"at character 16"}},
      {"()", {"at character 2"}},
      {"NOT", {"at character 4, the end"}},
      {"NOT NOT state = RUNNING", {"at character 5"}},
      {std::string("state\0= RUNNING", 15), {"at character 6", "\\x00"}},
      {std::string(33, '('), {"at most 32 parentheses"}},
      {std::string(4097, ' ') + "x", {"has 4098 characters"}},
  };
  for (const auto& c : kCases) {
    const auto filter = JobFilter::Parse(c.filter);
    EXPECT_EQ(filter.status().code(), absl::StatusCode::kInvalidArgument) << c.filter;
    const auto violations = GetViolations(filter.status());
    ASSERT_EQ(violations.size(), 1u) << c.filter;
    EXPECT_EQ(violations[0].field, "filter") << c.filter;
    for (const char* words : c.says) EXPECT_THAT(violations[0].description, HasSubstr(words)) << c.filter;
    EXPECT_EQ(violations[0].description.find('\n'), std::string::npos) << "one line";
  }
}

// Texts of the language's own pieces in any order: each is parsed or refused, and none brings the parser down.
TEST(JobFilterTest, AnyTextIsParsedOrRefused) {
  const std::vector<std::string> kPieces = {"state", "labels", ".", "team", "=",       "!=",   "<=",      ":",
                                            "*",     "\"",     "'", "\\",   "(",       ")",    " ",       "AND",
                                            "OR",    "NOT",    "5", "-",    "RUNNING", "\xff", "priority"};
  std::mt19937 random(7);
  int parsed = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (auto left = random() % 9; left > 0; --left) absl::StrAppend(&text, kPieces[random() % kPieces.size()]);
    const auto filter = JobFilter::Parse(text);
    if (filter.ok()) {
      filter->Matches(SampleJob());
      ++parsed;
    } else {
      EXPECT_EQ(GetViolations(filter.status()).size(), 1u) << text;
    }
  }
  EXPECT_GT(parsed, 10);
}

}  // namespace
}  // namespace permafrost::jobs
