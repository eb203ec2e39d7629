// Tests List, Get and CountByState, and the filters and page tokens of lists.
#include "jobs/job_list.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "jobs/job_manager.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JobListTest : public testing::Test {
 protected:
  // Returns the ids of all jobs in these states, read page by page.
  std::vector<std::string> ListAll(int64_t page_size, const std::vector<JobState>& states = {},
                                   const std::string& filter = "") {
    std::vector<std::string> ids;
    std::string token;
    do {
      const auto page = server_->List(page_size, token, {states, filter});
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) break;
      for (const Job& job : page->jobs) ids.push_back(job.id.value());
      token = page->next_page_token;
    } while (!token.empty());
    return ids;
  }

  const TempDir dir_;
  Server server_{dir_.path()};
};

TEST_F(JobListTest, PagesAreStableWhileJobsComeAndGo) {
  for (const char* id : {"a", "b", "c", "d", "e"}) server_.Create(id);
  const auto first = server_->List(2, "", {});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->jobs[0].id.value(), "e");
  EXPECT_EQ(first->jobs[1].id.value(), "d");
  server_.Create("newer");
  ASSERT_TRUE(server_->Cancel(JobId("d")).ok());
  ASSERT_TRUE(server_->Delete(JobId("d")).ok()) << "the very job at which the page ended";
  const auto second = server_->List(2, first->next_page_token, {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->jobs[0].id.value(), "c");
  EXPECT_EQ(second->jobs[1].id.value(), "b");
  const auto third = server_->List(2, second->next_page_token, {});
  ASSERT_TRUE(third.ok());
  ASSERT_EQ(third->jobs.size(), 1u);
  EXPECT_EQ(third->next_page_token, "");
}

TEST_F(JobListTest, ListsByStateAndPage) {
  for (const char* id : {"a", "b", "c", "d"}) server_.Create(id);
  ASSERT_TRUE(server_->Cancel(JobId("b")).ok());
  EXPECT_THAT(ListAll(0), ElementsAre("d", "c", "b", "a"));
  EXPECT_THAT(ListAll(2), ElementsAre("d", "c", "b", "a"));
  EXPECT_THAT(ListAll(1, {JobState::kQueued}), ElementsAre("d", "c", "a"));
  EXPECT_THAT(ListAll(5000, {JobState::kCancelled, JobState::kFailed}), ElementsAre("b"));
  EXPECT_THAT(ListAll(10, {JobState::kRunning}), testing::IsEmpty());
  const auto full_page = server_->List(4, "", {});
  EXPECT_EQ(full_page->next_page_token, "") << "a full last page is still the last";
  EXPECT_THAT(FieldsOf(server_->List(-1, "", {}).status()), ElementsAre("page_size"));
  const auto page = server_->List(2, "", {});
  EXPECT_THAT(FieldsOf(server_->List(2, page->next_page_token, {{JobState::kQueued}, ""}).status()),
              ElementsAre("page_token"));
}

TEST_F(JobListTest, ListsByFilterAndPage) {
  for (int i = 0; i < 6; ++i) {
    CreateRequest request = Server::Request(absl::StrCat("job-", i), 2, /*priority=*/i);
    if (i % 2 == 0) request.labels["team"] = "gnn";
    ASSERT_TRUE(server_->Create(request).ok());
  }
  const std::string filter = R"(labels.team = "gnn" AND priority > 0)";
  EXPECT_THAT(ListAll(50, {}, filter), ElementsAre("job-4", "job-2"));
  EXPECT_THAT(ListAll(1, {}, filter), ElementsAre("job-4", "job-2"));
  EXPECT_THAT(ListAll(50, {JobState::kCancelled}, filter), testing::IsEmpty());
  const auto page = server_->List(1, "", {{}, filter});
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(FieldsOf(server_->List(1, page->next_page_token, {{}, "priority > 0"}).status()),
              ElementsAre("page_token"));
  EXPECT_THAT(FieldsOf(server_->List(1, "", {{}, "priority >"}).status()), ElementsAre("filter"));
}

TEST_F(JobListTest, APageOfARareFilterEndsAfterSoManyJobsAndTheNextOneGoesOn) {
  CreateRequest request = Server::Request("oldest");
  request.labels["team"] = "gnn";
  ASSERT_TRUE(server_->Create(request).ok());
  SQLite::Database((dir_.path() / "permafrost.db").string(), SQLite::OPEN_READWRITE)
      .exec(
          "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10100) "
          "INSERT INTO jobs (id, state, create_time, spec, progress, error, resumes) "
          "SELECT 'old-' || i, 'cancelled', 0, '{\"dataset\":\"zinc\"}', '{}', '', 0 FROM n");
  const JobQuery query{.states = {}, .filter = "labels:team"};
  const auto first = server_->List(50, "", query);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->jobs.empty());
  ASSERT_NE(first->next_page_token, "");
  const auto second = server_->List(50, first->next_page_token, query);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->jobs.size(), 1u);
  EXPECT_EQ(second->jobs[0].id.value(), "oldest");
  EXPECT_EQ(second->next_page_token, "");
}

TEST_F(JobListTest, ProgressIsLiveInGetAndList) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", 100);
  const auto store = JobStore::Open(dir_.path() / "permafrost.db");
  // The store takes progress once a second. A slow machine may need that long for a step, so the loop looks for one
  // step that is not stored.
  bool ahead = false;
  for (int64_t step = 1; step <= 50 && !ahead; ++step) {
    server_.runner().Permit(1);
    server_.runner().AwaitHeld();
    EXPECT_EQ(server_.Get("job-a").progress.step, step);
    EXPECT_EQ(server_->List(10, "", {})->jobs.at(0).progress.step, step);
    ahead = (*store)->Get(JobId("job-a"))->progress.step < step;
  }
  EXPECT_TRUE(ahead) << "what is told is what is stored";
}

TEST_F(JobListTest, CountsByState) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a");
  server_.runner().AwaitHeld();
  server_.Create("job-b");
  server_.Create("job-c");
  ASSERT_TRUE(server_->Cancel(JobId("job-c")).ok());
  EXPECT_THAT(server_->CountByState(), ElementsAre(1, 0, 0, 0, 0, 1, 0, 1, 0, 0));
}

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
      // These fields are not set in the job.
      {"labels.owner = x", false},
      {"labels.owner != x", false},
      {"NOT labels.owner = x", true},
      {"labels.owner:*", false},
      {"labels:owner", false},
      {"end_time < \"2100-01-01T00:00:00Z\"", false},
      {"NOT end_time < \"2100-01-01T00:00:00Z\"", true},
      // Operators, and how strongly they bind.
      {"state = RUNNING AND labels.team = \"gnn\" AND dataset = \"datasets/zinc\"", true},
      {"state = RUNNING AND priority > 5", false},
      {"state = QUEUED OR priority = 5", true},
      {"state = QUEUED OR priority = 6", false},
      {"NOT state = QUEUED", true},
      {"NOT(state = RUNNING)", false},
      {"NOT state = QUEUED AND priority = 5", true},
      // OR binds more strongly than AND (AIP-160). With the opposite precedence, the first filter would hold.
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

// Joins pieces of the filter language in any order. Each text is parsed or refused, and none crashes the parser.
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
