// List, Get and CountByState tell which jobs there are.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "jobs/job_manager.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;

class JobListTest : public testing::Test {
 protected:
  // The ids of all jobs in these states, asked for a page at a time.
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
  // Stored once a second, which a slow machine may take for a step: one that is not stored shows it.
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

}  // namespace
}  // namespace permafrost::jobs
