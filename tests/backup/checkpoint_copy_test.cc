// Tests checkpoints that disappear while a backup copies them, and jobs whose backup must contain one.
#include "backup/copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "backup/backup_fixture.h"
#include "train/checkpoint_files.h"

namespace permafrost::backup {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CheckpointCopyTest : public BackupTest {
 protected:
  // Returns a change that makes a job's record name the checkpoint of `step`.
  static std::function<void(jobs::Job&)> WithCheckpoint(int64_t step) {
    return [step](jobs::Job& job) { job.progress.checkpoint_step = step; };
  }
  fs::path Checkpoints(const std::string& id) const { return JobPath(id) / "checkpoints"; }
  // Returns the steps of job a's checkpoints in a backup, after a comparison of all their bytes.
  std::vector<int64_t> WholeIn(const std::string& backup) const {
    const auto found = train::ListCheckpoints(root_ / backup / "jobs/a/checkpoints", /*verify=*/true);
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<int64_t> steps;
    for (const train::CheckpointInfo& info : found.value_or(std::vector<train::CheckpointInfo>())) {
      EXPECT_EQ(info.damage, "");
      steps.push_back(info.step);
    }
    return steps;
  }
  // Returns the names in the checkpoint folder of job a.
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(Checkpoints("a"))) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(CheckpointCopyTest, OneThatIsRemovedWhileItIsCopiedIsCopiedAllTheSame) {
  AddJob("a", jobs::JobState::kRunning);
  PutCheckpoint(JobPath("a"), 1);
  const auto made = MakeOne("one", false, [&](int64_t, int64_t) {
    if (fs::exists(Checkpoints("a") / "1")) {
      PutCheckpoint(JobPath("a"), 2);
      fs::remove_all(Checkpoints("a") / "1");
    }
    return true;
  });
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(WholeIn("one"), ElementsAre(1)) << "it was held";
  EXPECT_THAT(Left(), ElementsAre("2")) << "and is let go";
}

TEST_F(CheckpointCopyTest, WhereNoLinksCanBeMadeTheNewerOneIsCopied) {
  const fs::path elsewhere = fs::path("/dev/shm") / dir_.path().filename();
  std::error_code error;
  fs::create_directories(elsewhere / "1", error);
  struct stat here {
  }, there{};
  if (error || stat(dir_.path().c_str(), &here) != 0 || stat(elsewhere.c_str(), &there) != 0 ||
      here.st_dev == there.st_dev) {
    GTEST_SKIP() << "there is no other file system at /dev/shm";
  }
  AddJob("a", jobs::JobState::kRunning);
  PutCheckpoint(JobPath("a"), 1);
  // The checkpoint lies on another file system, so the backup cannot make hard links to it.
  fs::copy(Checkpoints("a") / "1", elsewhere / "1", fs::copy_options::recursive);
  fs::remove_all(Checkpoints("a") / "1");
  fs::create_directory_symlink(elsewhere / "1", Checkpoints("a") / "1");
  ASSERT_TRUE(MakeOne("one").ok());
  EXPECT_THAT(WholeIn("one"), ElementsAre(1));
  const auto made = MakeOne("two", false, [&](int64_t, int64_t) {
    if (fs::remove(Checkpoints("a") / "1")) {
      fs::remove_all(elsewhere);
      PutCheckpoint(JobPath("a"), 2);
    }
    return true;
  });
  fs::remove_all(elsewhere);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(WholeIn("two"), ElementsAre(2));
  EXPECT_THAT(Left(), ElementsAre("2"));
}

TEST_F(CheckpointCopyTest, AJobWhoseRecordKnowsOfOneThatIsGoneIsNamed) {
  AddJob("a", jobs::JobState::kQueued, WithCheckpoint(7));
  AddJob("b", jobs::JobState::kQueued, WithCheckpoint(7));
  fs::create_directories(Checkpoints("b"));
  AddJob("new", jobs::JobState::kQueued);
  AddJob("begun", jobs::JobState::kRunning);
  fs::create_directories(Checkpoints("begun"));
  const auto made = MakeOne("one");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->jobs_anew, ElementsAre(JobId("a"), JobId("b"))) << "a server that goes on from it starts them anew";
}

TEST_F(CheckpointCopyTest, TheFirstOneThatComesAfterTheLookIsInIt) {
  jobs::Job job = AddJob("a", jobs::JobState::kRunning);
  // The checkpoint appears at the first byte of the job's log, which is copied after the checkpoints.
  bool begun = false;
  const auto made = MakeOne("one", false, [&](int64_t, int64_t) {
    if (!std::exchange(begun, true)) {
      PutCheckpoint(JobPath("a"), 5);
      job.progress.checkpoint_step = 5;
      EXPECT_TRUE(store_->Update(job).ok());
    }
    return true;
  });
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(WholeIn("one"), ElementsAre(5)) << "the database in it says that there is one";
  EXPECT_THAT(made->jobs_anew, IsEmpty());
}

TEST_F(CheckpointCopyTest, WhatABackupThatDiedHeldIsLetGo) {
  AddJob("a", jobs::JobState::kQueued);
  PutCheckpoint(JobPath("a"), 1);
  Put(Checkpoints("a") / ".tmp-backup/model.safetensors", "of an older one");
  ASSERT_TRUE(MakeOne("one").ok());
  EXPECT_THAT(WholeIn("one"), ElementsAre(1));
  EXPECT_THAT(Left(), ElementsAre("1"));
}

}  // namespace
}  // namespace permafrost::backup
