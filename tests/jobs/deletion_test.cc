// Tests what becomes of a deleted job's files if the disk does not release them.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/monotonic.h"
#include "jobs/job_files.h"
#include "jobs/manager_fixture.h"
#include "no_descriptors.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::SizeIs;

class DeletionTest : public testing::Test {
 protected:
  fs::path Jobs() const { return dir_.path() / "jobs"; }
  // Runs a job to its end and deletes it, while another directory occupies the place to which the job's directory is
  // moved. Returns the path of that obstacle.
  fs::path DeleteWithAnObstacle(Server& server, const std::string& id) {
    const Job job = server.Create(id, 1);
    server.AwaitEnd(id);
    fs::path obstacle = Jobs() / absl::StrCat(".deleted-", id, "-", job.sequence);
    fs::create_directories(obstacle / "full");
    EXPECT_TRUE(server->Delete(JobId(id)).ok());
    EXPECT_TRUE(absl::IsNotFound(server->Get(JobId(id)).status())) << "off the record all the same";
    EXPECT_TRUE(fs::exists(server.JobDirectory(id))) << "nothing kept it from being moved";
    return obstacle;
  }
  // Moves the obstacle away in one step, so as not to remove what the server moves to the same place. The server may
  // already have removed the obstacle.
  void RemoveObstacle(const fs::path& obstacle) const {
    std::error_code gone;
    fs::rename(obstacle, dir_.path() / "away", gone);
    fs::remove_all(dir_.path() / "away");
  }
  // Waits until the server's own thread has removed `path`.
  static void AwaitGone(const fs::path& path) {
    for (const Stopwatch waited; fs::exists(path); absl::SleepFor(absl::Milliseconds(2))) {
      ASSERT_LT(waited.Elapsed(), absl::Minutes(1)) << path << " is still there";
    }
  }

  const TempDir dir_;
};

TEST_F(DeletionTest, FilesThatCouldNotBeMovedAreRemovedOnceTheyCan) {
  Server server(dir_.path());
  server->Start();
  const fs::path obstacle = DeleteWithAnObstacle(server, "job-a");
  RemoveObstacle(obstacle);
  AwaitGone(server.JobDirectory("job-a"));
  AwaitGone(obstacle);
  EXPECT_THAT(QuarantinedIn(Jobs(), "job-a"), IsEmpty());
}

TEST_F(DeletionTest, FilesOfALaterJobOfTheSameIdStay) {
  Server server(dir_.path());
  server->Start();
  const fs::path first = DeleteWithAnObstacle(server, "job-a");
  server.Create("job-a", 1);
  EXPECT_THAT(QuarantinedIn(Jobs(), "job-a"), SizeIs(1)) << "the new one begins with an empty directory";
  server.AwaitEnd("job-a");
  const fs::path second = DeleteWithAnObstacle(server, "job-b");
  RemoveObstacle(first);
  RemoveObstacle(second);
  // The server handles the oldest leftover first. Once job-b's is gone, it has also handled job-a's.
  AwaitGone(server.JobDirectory("job-b"));
  EXPECT_TRUE(fs::exists(server.JobDirectory("job-a") / "log"));
}

TEST_F(DeletionTest, OneThatAKillCutShortIsEndedByTheNextStart) {
  int64_t gone = 0;
  {
    Server server(dir_.path());
    server->Start();
    gone = server.Create("gone", 1).sequence;
    server.Create("stays", 1);
    server.AwaitEnd("gone");
    server.AwaitEnd("stays");
    ASSERT_TRUE(server->Delete(JobId("gone")).ok());
    EXPECT_FALSE(fs::exists(server.JobDirectory("gone")));
  }
  // A kill interrupted the deletion of `gone` after its row was deleted, and that of `stays` before.
  const JobFiles files(Jobs());
  fs::create_directories(Jobs() / "gone/artifacts/best.safetensors");
  files.MarkDeleted(JobId("gone"), gone);
  files.MarkDeleted(JobId("stays"), gone + 1);
  for (int start = 0; start < 2; ++start) {
    Server server(dir_.path());
    EXPECT_FALSE(fs::exists(Jobs() / "gone"));
    EXPECT_THAT(QuarantinedIn(Jobs(), "gone"), IsEmpty());
    EXPECT_EQ(server.Get("stays").state, JobState::kSucceeded);
    EXPECT_TRUE(fs::exists(server.JobDirectory("stays") / "log"));
    EXPECT_FALSE(fs::exists(server.JobDirectory("stays") / "deleted"));
    EXPECT_EQ(server.Metric("permafrost_job_directories_quarantined_total"), 0);
  }
}

// For example, an older backup of the database never held the job.
TEST_F(DeletionTest, AMarkProvesNothingToADatabaseThatNeverGaveItsSequence) {
  {
    Server server(dir_.path());
    server.Create("known", 1);
  }
  const JobFiles files(Jobs());
  fs::create_directories(Jobs() / "newer/checkpoints/70");
  files.MarkDeleted(JobId("newer"), 1000);
  fs::create_directories(Jobs() / "odd/checkpoints/70");
  ASSERT_TRUE(WriteFileAtomic(Jobs() / "odd/deleted", "no number").ok());
  Server later(dir_.path());
  for (const char* id : {"newer", "odd"}) {
    ASSERT_THAT(QuarantinedIn(Jobs(), id), SizeIs(1)) << id;
    EXPECT_TRUE(fs::exists(QuarantinedIn(Jobs(), id)[0] / "checkpoints/70"));
  }
}

TEST_F(DeletionTest, OneThatTheDatabaseRefusesLeavesNoMark) {
  Server server(dir_.path());
  server->Start();
  server.Create("job-a", 1);
  server.AwaitEnd("job-a");
  SQLite::Database((dir_.path() / "permafrost.db").string(), SQLite::OPEN_READWRITE, 5000)
      .exec("CREATE TRIGGER full BEFORE DELETE ON jobs BEGIN SELECT RAISE(ABORT, 'disk full'); END");
  EXPECT_FALSE(server->Delete(JobId("job-a")).ok());
  EXPECT_FALSE(fs::exists(server.JobDirectory("job-a") / "deleted"));
  EXPECT_TRUE(fs::exists(server.JobDirectory("job-a") / "log"));
}

// The kill came before the mark was on disk, or an older version made no mark.
TEST_F(DeletionTest, OneThatAKillCutShortKeepsNoServerFromStarting) {
  {
    Server server(dir_.path());
    server->Start();
    server.Create("only", 1);
    server.AwaitEnd("only");
    ASSERT_TRUE(server->Delete(JobId("only")).ok());
  }
  // Restores the state in which the row is deleted and the directory is not yet moved.
  fs::create_directories(Jobs() / "only/artifacts/best.safetensors");
  const absl::Status started = Server::TryOpen(dir_.path(), /*quarantine_unknown_jobs=*/false);
  EXPECT_TRUE(started.ok()) << started;
  ASSERT_THAT(QuarantinedIn(Jobs(), "only"), SizeIs(1));
  EXPECT_TRUE(fs::exists(QuarantinedIn(Jobs(), "only")[0] / "artifacts/best.safetensors"));
}

TEST_F(DeletionTest, WhatItLeftAndCannotBeRemovedIsPassedOver) {
  const JobFiles files(Jobs());
  const fs::path left = files.Discarded(JobId("job-a"), 7);
  fs::create_directories(left / "checkpoints/9");
  const auto strays = files.FindUnknownDirectories([](const JobId&) { return false; }, 0);
  ASSERT_TRUE(strays.ok()) << strays.status();
  ASSERT_THAT(strays->discarded, SizeIs(1));
  {
    const NoDescriptors exhausted;
    const auto cleared = files.ClearStrays(*strays);
    EXPECT_TRUE(cleared.ok()) << cleared.status();
  }
  ASSERT_TRUE(fs::exists(left)) << "it could be removed";
  ASSERT_TRUE(files.ClearStrays(*strays).ok());
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(DeletionTest, MovingAwayTwiceIsMovingAwayOnce) {
  const JobFiles files(Jobs());
  ASSERT_TRUE(files.Make(JobId("job-a")).ok());
  fs::create_directories(files.Directory(JobId("job-a")) / "artifacts");
  for (int time = 0; time < 2; ++time) {
    const absl::Status moved = files.Discard(JobId("job-a"), 3);
    EXPECT_TRUE(moved.ok()) << moved;
    EXPECT_FALSE(fs::exists(files.Directory(JobId("job-a"))));
    EXPECT_TRUE(fs::exists(files.Discarded(JobId("job-a"), 3) / "artifacts"));
  }
}

}  // namespace
}  // namespace permafrost::jobs
