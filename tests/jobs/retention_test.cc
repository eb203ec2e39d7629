// Tests how many ended jobs are kept, and how much of a log.
#include "jobs/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

Job Ended(const std::string& id, absl::Duration ago, JobState state = JobState::kSucceeded) {
  Job job;
  job.id = JobId(id);
  job.state = state;
  job.end_time = kNow - ago;
  return job;
}

std::vector<std::string> Expired(std::vector<Job> jobs, const KeepFinished& keep) {
  std::vector<std::string> ids;
  for (const Job& job : ChooseExpired(std::move(jobs), keep, kNow)) ids.push_back(job.id.value());
  return ids;
}

TEST(ChooseExpiredTest, ByNumberAndByAge) {
  Job unreadable = Ended("unreadable", absl::Hours(99), JobState::kFailed);
  unreadable.unreadable = true;
  const std::vector<Job> jobs = {Ended("b", absl::Hours(2)), Ended("c", absl::Hours(1), JobState::kFailed),
                                 Ended("a", absl::Hours(3), JobState::kCancelled), unreadable,
                                 Ended("queued", absl::Hours(9), JobState::kQueued)};
  EXPECT_THAT(Expired(jobs, {}), IsEmpty()) << "all are kept unless someone says otherwise";
  EXPECT_THAT(Expired(jobs, {.count = 1}), ElementsAre("a", "b")) << "the last that ended stays";
  EXPECT_THAT(Expired(jobs, {.count = 9}), IsEmpty());
  EXPECT_THAT(Expired(jobs, {.count = 0}), ElementsAre("a", "b", "c")) << "what cannot be read is not deleted";
  EXPECT_THAT(Expired(jobs, {.age = absl::Hours(2)}), ElementsAre("a", "b"));
  EXPECT_THAT(Expired(jobs, {.count = 2, .age = absl::Minutes(90)}), ElementsAre("a", "b"));
}

TEST(RetentionTest, JobsThatEndPushTheOldestOut) {
  const TempDir dir;
  Server server(dir.path() / "state", absl::Milliseconds(1), true, {.count = 2});
  server->Start();
  for (int i = 0; i < 4; ++i) {
    const std::string id = absl::StrCat("job-", i);
    server.Create(id, 1);
    server.AwaitEnd(id);
  }
  // The counter increases last, after the job's row and files are gone.
  const auto expired = [&server] { return server.Metric("permafrost_jobs_expired_total"); };
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (expired() < 2 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  const auto left = server->List(10, "", {});
  ASSERT_EQ(left->jobs.size(), 2u);
  EXPECT_EQ(left->jobs[0].id.value(), "job-3");
  EXPECT_EQ(left->jobs[1].id.value(), "job-2");
  EXPECT_FALSE(std::filesystem::exists(server.JobDirectory("job-0")));
  EXPECT_TRUE(std::filesystem::exists(server.JobDirectory("job-2")));
  EXPECT_EQ(expired(), 2);
  EXPECT_EQ(server.Metric("permafrost_jobs", {{"state", "succeeded"}}), 2);
}

// Retention with a clock that the test sets.
class ClockedRetentionTest : public testing::Test {
 protected:
  JobManagerOptions Options() {
    return {.keep_finished = {.age = absl::Hours(30 * 24)},
            .now = [this] { return absl::Now() + absl::Hours(hours_ahead_.load()); },
            .may_expire = [this] { return !doubted_.load(); }};
  }
  static double Expired(const Server& server) { return server.Metric("permafrost_jobs_expired_total"); }

  const TempDir dir_;
  std::atomic<int> hours_ahead_ = 0;
  std::atomic<bool> doubted_ = false;
};

TEST_F(ClockedRetentionTest, NothingIsDeletedWhileTheClockIsInDoubt) {
  doubted_ = true;
  hours_ahead_ = 400 * 24;
  Server server(dir_.path() / "state", Options());
  server->Start();
  server.Create("job-a", 1);
  server.AwaitEnd("job-a");
  // Longer than several checks for expired jobs take.
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(Expired(server), 0);
  EXPECT_EQ(server.Get("job-a").state, JobState::kSucceeded);
  doubted_ = false;  // an operator has confirmed the clock
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (Expired(server) < 1 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Expired(server), 1);
}

TEST_F(ClockedRetentionTest, TheNumberIsNotKeptEitherWhileTheOrderIsInDoubt) {
  JobManagerOptions options = Options();
  options.keep_finished = {.count = 1};
  doubted_ = true;
  Server server(dir_.path() / "state", options);
  server->Start();
  for (const char* id : {"job-a", "job-b", "job-c"}) {
    server.Create(id, 1);
    server.AwaitEnd(id);
  }
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(Expired(server), 0);
}

TEST_F(ClockedRetentionTest, AgesAndDeadlinesCountWhatWasSeen) {
  hours_ahead_ = -24;
  Server server(dir_.path() / "state", Options());
  server->Start();
  server.runner().Hold();
  CreateRequest request = Server::Request("job-a", 1);
  // The wall clock passes this deadline at once. By the time that the daemon saw pass, it is a day away.
  request.spec.limits.deadline = absl::Now() + absl::Seconds(1);
  ASSERT_TRUE(server->Create(request).ok());
  CreateRequest waiting = Server::Request("job-b", 1);
  waiting.spec.limits.deadline = absl::Now() + absl::Seconds(1);
  ASSERT_TRUE(server->Create(waiting).ok());
  absl::SleepFor(absl::Seconds(1) + absl::Milliseconds(100));
  EXPECT_EQ(server.Get("job-b").state, JobState::kQueued);
  server.runner().Release();
  EXPECT_EQ(server.AwaitEnd("job-a").state, JobState::kSucceeded);
  EXPECT_EQ(server.AwaitEnd("job-b").state, JobState::kSucceeded);
}

class BoundedLogTest : public testing::Test {
 protected:
  // Returns the log from `offset` to its end.
  std::string ReadFrom(int64_t offset) {
    std::string all;
    while (true) {
      const auto chunk = server_->ReadLog(JobId("job-a"), offset, 1000);
      EXPECT_TRUE(chunk.ok()) << chunk.status();
      if (!chunk.ok()) return all;
      all += chunk->data;
      offset = chunk->next_offset;
      if (chunk->complete) return all;
    }
  }

  const TempDir dir_;
  Server server_{dir_.path() / "state", absl::Milliseconds(1), true, {}, /*max_log_bytes=*/8000};
};

TEST_F(BoundedLogTest, TheOldestPartIsDroppedCountedAndTold) {
  constexpr int kLines = 1000;
  server_.runner().SetScript(
      [](const train::RunRequest&, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        for (int i = 0; i < kLines; ++i) context.Log(train::LogLevel::kInfo, absl::StrCat("line ", i));
        return train::RunOutcome{train::RunEnd::kSucceeded, train::RunResult()};
      });
  server_->Start();
  server_.Create("job-a");
  server_.AwaitEnd("job-a");
  uint64_t on_disk = 0;
  for (const auto& entry : std::filesystem::directory_iterator(server_.JobDirectory("job-a"))) {
    if (entry.path().filename().string().starts_with("log")) on_disk += entry.file_size();
  }
  EXPECT_LE(on_disk, 8200u) << "a line beyond the bound at most";
  const std::string log = ReadFrom(0);
  EXPECT_THAT(log, StartsWith("["));
  EXPECT_THAT(log, HasSubstr("bytes of this log are not kept"));
  EXPECT_THAT(log, HasSubstr(absl::StrCat("line ", kLines - 1, "\n")));
  EXPECT_THAT(log, testing::Not(HasSubstr("line 7\n")));
  const double dropped = server_.Metric("permafrost_job_log_dropped_bytes_total");
  EXPECT_GT(dropped, 0);
  // Offsets in the log stay valid: the dropped and the kept bytes add up to the whole log.
  const auto begin = server_->ReadLog(JobId("job-a"), 0, 1000);
  EXPECT_EQ(begin->next_offset, static_cast<int64_t>(dropped));
  EXPECT_THAT(begin->data, HasSubstr(absl::StrCat(static_cast<int64_t>(dropped), " bytes")));
  const auto end = server_->ReadLog(JobId("job-a"), -20, 1000);
  EXPECT_EQ(end->next_offset, static_cast<int64_t>(dropped) + static_cast<int64_t>(on_disk));
  EXPECT_EQ(server_->ReadLog(JobId("job-a"), end->next_offset + 1, 10).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(server_->ReadLog(JobId("job-a"), -1'000'000, 10)->data, ReadFrom(begin->next_offset).substr(0, 10));
}

TEST_F(BoundedLogTest, WhoFollowsItGetsEveryLineOnce) {
  constexpr int kLines = 400;
  std::string seen;
  server_.runner().SetScript(
      [&](const train::RunRequest&, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        int64_t offset = 0;
        for (int i = 0; i < kLines; ++i) {
          context.Log(train::LogLevel::kInfo, absl::StrCat("line ", i, " ."));
          const auto chunk = server_->ReadLog(JobId("job-a"), offset, 1 << 20);
          EXPECT_TRUE(chunk.ok()) << chunk.status();
          seen += chunk->data;
          offset = chunk->next_offset;
          // The rest of the log is in the next file.
          const auto rest = server_->ReadLog(JobId("job-a"), offset, 1 << 20);
          EXPECT_TRUE(rest.ok()) << rest.status();
          seen += rest->data;
          offset = rest->next_offset;
        }
        return train::RunOutcome{train::RunEnd::kSucceeded, train::RunResult()};
      });
  server_->Start();
  server_.Create("job-a");
  server_.AwaitEnd("job-a");
  for (int i = 0; i < kLines; ++i) {
    const std::string line = absl::StrCat("line ", i, " .");
    const size_t at = seen.find(line);
    ASSERT_NE(at, std::string::npos) << line;
    EXPECT_EQ(seen.find(line, at + 1), std::string::npos) << line;
  }
  EXPECT_THAT(seen, testing::Not(HasSubstr("not kept")));
}

}  // namespace
}  // namespace permafrost::jobs
