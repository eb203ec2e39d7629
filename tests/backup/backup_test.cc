#include "backup/backup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "backup/backup_fixture.h"
#include "backup/copies.h"
#include "backup/manifest.h"
#include "base/status.h"
#include "train/checkpoint_files.h"

namespace permafrost::backup {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(BackupTest, HoldsWhatAnotherDaemonNeedsAndNothingElse) {
  AddJob("done", jobs::JobState::kSucceeded);
  AddJob("waits", jobs::JobState::kQueued);
  PutCheckpoint(JobPath("waits"), 7);
  PutCheckpoint(JobPath("waits"), 9);
  Put(JobPath("done") / "artifacts" / "best.safetensors", "weights");
  Put(JobPath("done") / "last-step", "of this machine");
  Put(state_ / "tokens.json", "{}");
  Put(state_ / "plans" / "a.plan", "plan");
  Put(state_ / "datasets" / "zinc" / "graphs.pfg", "graphs");
  const auto made = MakeOne("one");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->jobs, 2);
  EXPECT_THAT(made->datasets_wanted, ElementsAre("zinc"));
  EXPECT_THAT(made->jobs_anew, IsEmpty());
  const fs::path copy = root_ / "one";
  EXPECT_EQ(made->path, copy);
  EXPECT_EQ(Get(copy / "jobs/done/artifacts/best.safetensors"), "weights");
  EXPECT_EQ(Get(copy / "jobs/waits/log"), "a line\n");
  EXPECT_TRUE(fs::exists(copy / "jobs/waits/checkpoints/9/state.json"));
  EXPECT_FALSE(fs::exists(copy / "jobs/waits/checkpoints/7")) << "the newest is enough";
  EXPECT_TRUE(fs::exists(copy / "tokens.json"));
  EXPECT_TRUE(fs::exists(copy / "plans/a.plan"));
  EXPECT_FALSE(fs::exists(copy / "jobs/done/last-step"));
  EXPECT_FALSE(fs::exists(copy / "datasets"));

  const auto with_datasets = MakeOne("two", /*with_datasets=*/true);
  ASSERT_TRUE(with_datasets.ok()) << with_datasets.status();
  EXPECT_THAT(with_datasets->datasets_wanted, IsEmpty());
  EXPECT_EQ(Get(root_ / "two/datasets/zinc/graphs.pfg"), "graphs");
}

TEST_F(BackupTest, ADamagedCheckpointIsLeftForTheOneBefore) {
  AddJob("a", jobs::JobState::kQueued);
  PutCheckpoint(JobPath("a"), 1);
  PutCheckpoint(JobPath("a"), 2);
  std::fstream(JobPath("a") / "checkpoints/2/model.safetensors", std::ios::in | std::ios::out) << "X";
  ASSERT_TRUE(MakeOne("one").ok());
  EXPECT_TRUE(fs::exists(root_ / "one/jobs/a/checkpoints/1/state.json"));
  EXPECT_FALSE(fs::exists(root_ / "one/jobs/a/checkpoints/2"));
  // A job whose checkpoints are all damaged does not prevent a backup of the other jobs.
  std::fstream(JobPath("a") / "checkpoints/1/model.safetensors", std::ios::in | std::ios::out) << "X";
  const auto made = MakeOne("two");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_FALSE(fs::exists(root_ / "two/jobs/a/checkpoints"));
  EXPECT_THAT(made->jobs_anew, ElementsAre(JobId("a"))) << "it loses work, which is to be told";
}

TEST_F(BackupTest, CheckpointsThatComeAndGoDoNotFailIt) {
  AddJob("a", jobs::JobState::kRunning);
  PutCheckpoint(JobPath("a"), 0);
  std::atomic<bool> stop = false;
  std::atomic<int64_t> written = 0;
  std::thread run([&] {
    for (int64_t step = 1; !stop; ++step) {
      PutCheckpoint(JobPath("a"), step);
      fs::remove_all(JobPath("a") / "checkpoints" / absl::StrCat(step - 1));
      written = step;
    }
  });
  for (int i = 0; i < 20; ++i) {
    const std::string name = absl::StrCat("b", i);
    const auto made = MakeOne(name);
    // The checkpoints change faster than in any real run. The backup may therefore fail, and must then leave no
    // directory.
    if (!made.ok()) {
      EXPECT_TRUE(absl::IsUnavailable(made.status())) << made.status();
      EXPECT_FALSE(fs::exists(root_ / name));
      continue;
    }
    const auto found = train::ListCheckpoints(root_ / name / "jobs/a/checkpoints", /*verify=*/true);
    EXPECT_TRUE(found.ok() && found->size() == 1 && found->front().damage.empty()) << found.status();
  }
  stop = true;
  run.join();
  EXPECT_GT(written, 0);
}

TEST_F(BackupTest, AJobThatWasDeletedMeanwhileIsNotInIt) {
  AddJob("gone", jobs::JobState::kSucceeded);
  AddJob("here", jobs::JobState::kFailed);
  fs::remove_all(JobPath("gone"));
  const auto made = MakeOne("one");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->jobs, 1);
  const auto rows = ReadJobRows(root_ / "one/permafrost.db");
  ASSERT_TRUE(rows.ok() && rows->size() == 1);
  EXPECT_EQ(rows->front().id.value(), "here");
}

TEST_F(BackupTest, FilesOfAJobThatIsDeletedWhileTheyAreCopiedAreNotInIt) {
  // The job is deleted while piece 1 (of its checkpoint) or piece 3 (the last one, of its log) is copied.
  for (const int piece : {1, 3}) {
    SCOPED_TRACE(piece);
    AddJob("gone", jobs::JobState::kQueued);
    PutCheckpoint(JobPath("gone"), 7);
    int pieces = 0;
    const std::string name = absl::StrCat("b", piece);
    const auto made = MakeOne(name, false, [&](int64_t, int64_t) {
      if (++pieces == piece) {
        EXPECT_TRUE(store_->Delete(JobId("gone")).ok());
        fs::remove_all(JobPath("gone"));
      }
      return true;
    });
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_GE(pieces, piece);
    EXPECT_EQ(made->jobs, 0);
    EXPECT_FALSE(fs::exists(root_ / name / "jobs/gone"));
    EXPECT_TRUE(BeginRestore(root_ / name).ok()) << "nor does backup.json name them";
  }
}

TEST_F(BackupTest, TheOlderPartOfALogIsInItThoughItRotatesMeanwhile) {
  AddJob("a", jobs::JobState::kRunning);
  Put(JobPath("a") / "log.100", "older\n");
  Put(JobPath("a") / "log.tmp", "not of the log");
  ASSERT_TRUE(MakeOne("one").ok());
  EXPECT_EQ(Get(root_ / "one/jobs/a/log.100"), "older\n");
  EXPECT_FALSE(fs::exists(root_ / "one/jobs/a/log.tmp"));
  bool rotated = false;
  const auto made = MakeOne("two", false, [&](int64_t, int64_t) {
    if (!rotated) {
      fs::rename(JobPath("a") / "log", JobPath("a") / "log.106");
      fs::remove(JobPath("a") / "log.100");
      Put(JobPath("a") / "log", "newest\n");
      rotated = true;
    }
    return true;
  });
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(rotated);
  EXPECT_EQ(Get(root_ / "two/jobs/a/log.106"), "a line\n");
  EXPECT_EQ(Get(root_ / "two/jobs/a/log"), "newest\n");
  EXPECT_FALSE(fs::exists(root_ / "two/jobs/a/log.100"));
}

TEST_F(BackupTest, OneThatCannotCatchUpSaysSo) {
  AddJob("j0", jobs::JobState::kQueued);
  int jobs = 1;
  const auto made = MakeOne("one", false, [&](int64_t, int64_t) {
    AddJob(absl::StrCat("j", jobs++), jobs::JobState::kQueued);
    return true;
  });
  EXPECT_TRUE(absl::IsUnavailable(made.status())) << made.status();
  EXPECT_THAT(InRoot(), ElementsAre(".lock"));
  EXPECT_TRUE(MakeOne("one").ok());
}

TEST_F(BackupTest, OfTwoAtOnceTheSecondIsRefusedAndTheFirstGoesOn) {
  AddJob("a", jobs::JobState::kQueued);
  int refused = 0;
  const auto made = MakeOne("one", false, [&](int64_t, int64_t) {
    const absl::Status second = MakeOne("one").status();
    refused += absl::IsFailedPrecondition(second) && GetReason(second).reason == "BACKUP_UNDER_WAY" ? 1 : 0;
    return true;
  });
  EXPECT_TRUE(made.ok()) << made.status();
  EXPECT_GE(refused, 1);
  EXPECT_TRUE(BeginRestore(root_ / "one").value());
}

TEST_F(BackupTest, WhatADaemonThatDiedLeftIsRemovedAndNothingElse) {
  const fs::path left = CreateMaking(root_ / "dated").value();
  Put(left / "jobs/a/log", "a line");
  EXPECT_TRUE(absl::IsDataLoss(BeginRestore(left).status())) << "nobody goes on from a part";
  fs::create_directories(root_ / ".tmp-just-begun");
  Put(root_ / ".tmp-marked-next/.backup.json", "{");
  Put(root_ / ".tmp-mine/a", "mine");
  ASSERT_TRUE(MakeOne("whole").ok());
  fs::rename(root_ / "whole", root_ / ".tmp-whole");
  EXPECT_TRUE(absl::IsAlreadyExists(MakeOne("mine").status()));
  ASSERT_TRUE(MakeOne("one").ok());
  EXPECT_THAT(InRoot(), ElementsAre(".lock", ".tmp-mine", ".tmp-whole", "one"));
  EXPECT_EQ(Get(root_ / ".tmp-mine/a"), "mine");
}

TEST_F(BackupTest, WhatIsInTheWayIsNeverWrittenOver) {
  Put(root_ / "full/a", "mine");
  fs::create_directories(root_ / "empty");
  EXPECT_TRUE(absl::IsAlreadyExists(MakeOne("full").status()));
  EXPECT_EQ(Get(root_ / "full/a"), "mine");
  EXPECT_TRUE(MakeOne("empty").ok());
  fs::create_directories(dir_.path() / "elsewhere");
  fs::create_directory_symlink(dir_.path() / "elsewhere", root_ / "link");
  fs::create_symlink(dir_.path() / "nowhere", root_ / "dangling");
  for (const std::string link : {"link", "dangling"}) {
    EXPECT_THAT(std::string(MakeOne(link).status().message()), HasSubstr("is a symbolic link"));
    EXPECT_TRUE(fs::is_symlink(root_ / link));
  }
  EXPECT_TRUE(MakeOne((root_ / "by-path").string()).ok());
  for (const std::string bad : {"", ".", "..", "../x", "a/b", "/tmp/x", ".hidden", "a b"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(MakeOne(bad).status())) << bad;
  }
  EXPECT_EQ(
      GetReason(Make({.state_dir = state_, .root = {}, .directory = "a", .with_datasets = false, .version = "1"}, GoOn)
                    .status())
          .reason,
      "NO_BACKUP_ROOT");
}

TEST_F(BackupTest, OneThatIsGivenUpLeavesNothing) {
  Put(state_ / "plans/a.plan", "plan");
  const auto made = MakeOne("one", false, [](int64_t, int64_t) { return false; });
  EXPECT_TRUE(absl::IsCancelled(made.status())) << made.status();
  EXPECT_THAT(InRoot(), ElementsAre(".lock"));
}

TEST_F(BackupTest, ACopyIsCheckedOnceAndDamageIsNamed) {
  AddJob("a", jobs::JobState::kSucceeded);
  Put(JobPath("a") / "artifacts/last.safetensors", "weights");
  ASSERT_TRUE(MakeOne("one").ok());
  const fs::path copy = root_ / "one";
  EXPECT_EQ(BeginRestore(state_).value(), false) << "no backup";
  const auto damaged = [&](const std::string& file, const std::string& content) {
    const std::string before = Get(copy / file);
    Put(copy / file, content);
    const absl::Status status = BeginRestore(copy).status();
    Put(copy / file, before);
    EXPECT_TRUE(absl::IsDataLoss(status)) << file << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  };
  damaged("jobs/a/artifacts/last.safetensors", "Weights");
  damaged("jobs/a/log", "a");
  damaged("backup.json", "{}");
  fs::rename(copy / "jobs/a/log", copy / "log");
  EXPECT_THAT(std::string(BeginRestore(copy).status().message()), HasSubstr("jobs/a/log is missing"));
  fs::rename(copy / "log", copy / "jobs/a/log");
  EXPECT_EQ(BeginRestore(copy).value(), true);
  // The daemon's next work changes files. If it dies before the restore ends, the next daemon continues the restore.
  Put(copy / "jobs/a/log", "another line");
  EXPECT_EQ(BeginRestore(copy).value(), true);
  ASSERT_TRUE(EndRestore(copy).ok());
  EXPECT_EQ(BeginRestore(copy).value(), false);
  EXPECT_TRUE(fs::exists(copy / kRestoredFile));
}

TEST_F(BackupTest, TheNewestIsFound) {
  EXPECT_EQ(FindNewest(root_), fs::path());
  ASSERT_TRUE(MakeOne("old").ok());
  ASSERT_TRUE(MakeOne("new").ok());
  fs::last_write_time(root_ / "old" / kManifestFile,
                      fs::last_write_time(root_ / "new" / kManifestFile) - std::chrono::hours(1));
  EXPECT_EQ(FindNewest(root_), root_ / "new");
}

}  // namespace
}  // namespace permafrost::backup
