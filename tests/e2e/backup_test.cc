// Tests a backup of a daemon that trains, and a daemon that continues from the backup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// So many that the two backups, which begin during the second epoch, end long before the job does.
constexpr int64_t kEpochs = 10;

void SubmitBackedUp(Daemon& daemon, const std::string& id, int64_t epochs) {
  const Output out = daemon.Client({"job", "submit", "--id", id, "--dataset", "zinc", "--hidden", "16", "--layers", "2",
                                    "--epochs", absl::StrCat(epochs), "--checkpoint-every", "17"});
  ASSERT_EQ(out.code, 0) << out.err;
}

struct Ended {
  std::string weights;
  std::vector<double> losses;
  bool operator==(const Ended&) const = default;
};

Ended EndOf(Daemon& daemon, const std::string& id, const fs::path& scratch) {
  EXPECT_EQ(daemon.AwaitEnd(id).state(), v1::Job::STATE_SUCCEEDED);
  // Reads the job itself, because a watch sends each epoch only once.
  const v1::Job job = daemon.Get(id);
  Ended ended{.weights = daemon.LastWeights(id, scratch), .losses = {}};
  for (const v1::EpochMetrics& epoch : job.epochs()) ended.losses.push_back(epoch.train_loss());
  EXPECT_EQ(ended.losses.size(), static_cast<size_t>(kEpochs)) << "no epoch may be missing";
  return ended;
}

TEST(Backup, OfADaemonThatTrainsGoesOnBitEqualElsewhere) {
  const TempDir dir;
  const fs::path state = dir.path() / "state", root = dir.path() / "backups";
  fs::create_directory(root);
  const std::vector<std::string> flags = {"--backup-root", root.string()};
  Ended want;
  {
    Daemon daemon(state, ShippedSample(), flags);
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    SubmitBackedUp(daemon, "job", kEpochs);
    daemon.AwaitStep("job", 400);
    for (const std::string name : {"with", "without"}) {
      std::vector<std::string> backup = {"server", "backup", name};
      if (name == "with") backup.emplace_back("--with-datasets");
      const Output out = daemon.Client(backup);
      EXPECT_EQ(out.code, 0) << out.err;
      EXPECT_THAT(out.out, HasSubstr("is whole: 1 jobs"));
    }
    EXPECT_EQ(daemon.Get("job").state(), v1::Job::STATE_RUNNING) << "it ended before the last backup";
    EXPECT_NE(daemon.Client({"server", "backup", "with"}).code, 0) << "it is there";
    want = EndOf(daemon, "job", dir.path() / "w");
    EXPECT_EQ(daemon.Stop(), 0);
  }
  {
    const fs::path restored = dir.path() / "restored";
    CopyState(root / "with", restored);
    Daemon daemon(restored, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    EXPECT_EQ(EndOf(daemon, "job", dir.path() / "w"), want);
    EXPECT_GE(daemon.Get("job").resumes(), 1);
    EXPECT_THAT(daemon.Client({"server", "info"}).out, HasSubstr("from the backup of "));
    EXPECT_TRUE(fs::exists(restored / "audit.jsonl.1") || fs::file_size(restored / "audit.jsonl") > 0);
  }
  {
    const fs::path restored = dir.path() / "restored-without";
    CopyState(root / "without", restored);
    // Leaves the copy as a daemon does that is killed during the restore: checked, and changed since.
    fs::rename(restored / "backup.json", restored / "restoring.json");
    std::ofstream(restored / "jobs/job/log", std::ios::app) << "a line\n";
    Daemon daemon(restored, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    EXPECT_EQ(daemon.Get("job").state(), v1::Job::STATE_PAUSED) << "its dataset is not there yet";
    EXPECT_TRUE(fs::exists(restored / "restored.json"));
    EXPECT_FALSE(fs::exists(restored / "restoring.json"));
    daemon.Import("zinc", ShippedSample());
    ASSERT_EQ(daemon.Client({"job", "resume", "job"}).code, 0);
    EXPECT_EQ(EndOf(daemon, "job", dir.path() / "w"), want);
  }
}

TEST(Backup, WithoutARootIsRefusedByTheFlagsName) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  const Output out = daemon.Client({"server", "backup", "one"});
  EXPECT_EQ(out.code, 4);
  EXPECT_THAT(out.err, HasSubstr("--backup-root"));
}

TEST(Backup, ARootThatIsNotThereIsToldAsThat) {
  const TempDir dir;
  const std::string missing = (dir.path() / "missing").string();
  const Output out = RunCommand({PERMAFROSTD, "--state-dir", (dir.path() / "state").string(), "--listen", "127.0.0.1:0",
                                 "--metrics", "127.0.0.1:0", "--backup-root", missing});
  EXPECT_EQ(out.code, 1);
  EXPECT_THAT(out.err, HasSubstr("--backup-root \"" + missing + "\" does not exist: make it"));
}

}  // namespace
}  // namespace permafrost::e2e
