// Tests datasets that are replaced during a backup: which dataset the backup contains, and to which job it belongs.
#include "backup/copies.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backup/backup_fixture.h"
#include "backup/manifest.h"

namespace permafrost::backup {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class DatasetCopyTest : public BackupTest {
 protected:
  void PutDataset(const std::string& name, const std::string& uid, const std::string& content) {
    fs::remove_all(state_ / "datasets" / name);
    Put(state_ / "datasets" / name / "dataset.json", uid.empty() ? "{}" : absl::StrCat("{\"uid\": \"", uid, "\"}"));
    Put(state_ / "datasets" / name / "graphs.pfg", content);
  }
  void AddJobOn(const std::string& id, jobs::JobState state, const std::string& uid) {
    AddJob(id, state, [&uid](jobs::Job& job) { job.dataset_uid = uid; });
  }
  std::string CopyOf(const std::string& name) const { return Get(root_ / "one/datasets" / name / "graphs.pfg"); }
};

TEST_F(DatasetCopyTest, AJobOfADatasetThatReplacedTheCopiedOneGetsItsOwn) {
  PutDataset("zinc", "u1", "old");
  AddJobOn("first", jobs::JobState::kQueued, "u1");
  // The replacement happens after the datasets are copied and before the database is.
  bool begun = false;
  const auto made = MakeOne("one", /*with_datasets=*/true, [&](int64_t, int64_t) {
    if (fs::exists(root_ / ".tmp-one/jobs/first/log") && !std::exchange(begun, true)) {
      EXPECT_TRUE(store_->Delete(JobId("first")).ok());
      fs::remove_all(JobPath("first"));
      PutDataset("zinc", "u2", "new");
      AddJobOn("second", jobs::JobState::kQueued, "u2");
    }
    return true;
  });
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(begun);
  EXPECT_EQ(CopyOf("zinc"), "new") << "what its job was made of";
  EXPECT_THAT(made->datasets_wanted, IsEmpty());
}

TEST_F(DatasetCopyTest, AJobWhoseDatasetIsAnotherOneByNowWantsItsOwn) {
  PutDataset("zinc", "u2", "new");
  AddJobOn("a", jobs::JobState::kQueued, "u1");
  const auto made = MakeOne("one", true);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->datasets_wanted, ElementsAre("zinc"));
  EXPECT_EQ(CopyOf("zinc"), "new");
}

TEST_F(DatasetCopyTest, WhereNoUidIsKnownTheNamePairsThem) {
  PutDataset("zinc", "u1", "graphs");
  AddJobOn("older", jobs::JobState::kQueued, "");
  ASSERT_THAT(MakeOne("one", true)->datasets_wanted, IsEmpty());
  PutDataset("zinc", "", "graphs");
  AddJobOn("newer", jobs::JobState::kQueued, "u1");
  EXPECT_THAT(MakeOne("two", true)->datasets_wanted, IsEmpty());
}

TEST_F(DatasetCopyTest, AJobWhoseRecordCannotBeReadWantsNoDataset) {
  PutDataset("zinc", "u1", "graphs");
  AddJobOn("damaged", jobs::JobState::kQueued, "u1");
  SQLite::Database((state_ / "permafrost.db").string(), SQLite::OPEN_READWRITE).exec("UPDATE jobs SET spec = '{'");
  const auto bare = MakeOne("bare", false);
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_THAT(bare->datasets_wanted, IsEmpty());
  const auto made = MakeOne("one", true);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->datasets_wanted, IsEmpty());
  const auto manifest = ReadManifest(root_ / "one");
  ASSERT_TRUE(manifest.ok() && *manifest) << manifest.status();
  std::vector<std::string> of_datasets;
  for (const auto& [path, file] : (*manifest)->files) {
    if (path.starts_with("datasets/")) of_datasets.push_back(path);
  }
  EXPECT_THAT(of_datasets, ElementsAre("datasets/zinc/dataset.json", "datasets/zinc/graphs.pfg")) << "each once";
}

TEST_F(DatasetCopyTest, NoCopyHasFilesOfTwoDatasets) {
  PutDataset("zinc", "u1", "old");
  bool replaced = false;
  // The replacement happens at the first piece, which is part of dataset.json.
  const auto made = MakeOne("one", true, [&](int64_t, int64_t) {
    if (!std::exchange(replaced, true)) PutDataset("zinc", "u2", "new");
    return true;
  });
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Get(root_ / "one/datasets/zinc/dataset.json"), "{\"uid\": \"u2\"}");
  EXPECT_EQ(CopyOf("zinc"), "new");
}

}  // namespace
}  // namespace permafrost::backup
