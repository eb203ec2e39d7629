#include "train/checkpoint_files.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/time/clock.h"
#include "base/status.h"
#include "temp_dir.h"
#include "train/loop/artifacts.h"
#include "train/loop/checkpoint.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;

class CheckpointFilesTest : public testing::Test {
 protected:
  void Save(int64_t step) {
    CheckpointStore store(directory_, 10, {{"format", "pt"}}, [](std::string_view) {});
    Checkpoint c;
    c.state.step = step;
    c.state.position = {1, 7};
    c.state.best_epoch = 1;
    c.model = {{"w", at::full({4, 4}, static_cast<double>(step))}};
    c.best = c.model;
    ASSERT_TRUE(store.Save(c).ok());
  }
  std::vector<CheckpointInfo> List(bool verify = false) {
    const auto found = ListCheckpoints(directory_, verify);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : std::vector<CheckpointInfo>();
  }
  static void FlipLastByte(const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(byte);
  }

  const TempDir dir_;
  const fs::path directory_ = dir_.path() / "checkpoints";
};

TEST_F(CheckpointFilesTest, ListsWhatTheStoreSavedNewestFirst) {
  EXPECT_TRUE(List().empty()) << "no directory yet";
  const absl::Time before = absl::Now() - absl::Seconds(5);
  Save(9);
  Save(100);
  fs::create_directories(directory_ / ".tmp-200");
  for (const bool verify : {false, true}) {
    const auto found = List(verify);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].step, 100);
    EXPECT_EQ(found[1].step, 9);
    for (const CheckpointInfo& info : found) {
      EXPECT_EQ(info.damage, "");
      EXPECT_EQ(info.epochs_done, 1);
      EXPECT_EQ(info.batch, 7);
      EXPECT_EQ(info.best_epoch, 1);
      EXPECT_GT(info.time, before);
      uint64_t bytes = 0;
      for (const auto& file : fs::directory_iterator(directory_ / std::to_string(info.step))) bytes += file.file_size();
      EXPECT_EQ(info.bytes, bytes);
    }
  }
}

TEST_F(CheckpointFilesTest, DamageIsToldAndCostsNoOther) {
  const struct {
    const char* why;
    std::function<void(const fs::path&)> damage;
    bool only_when_verified;
    const char* says;
  } kCases[] = {
      {"a file is gone", [](const fs::path& p) { fs::remove(p / "best.safetensors"); }, false,
       "best.safetensors: is missing"},
      {"the manifest is gone", [](const fs::path& p) { fs::remove(p / "state.json"); }, false,
       "state.json: is missing"},
      {"a file is cut", [](const fs::path& p) { fs::resize_file(p / "model.safetensors", 9); }, false,
       "model.safetensors: has 9 bytes in place of"},
      {"the manifest is changed", [](const fs::path& p) { fs::resize_file(p / "state.json", 20); }, false,
       "state.json: checksum does not match"},
      {"a bit is flipped", [](const fs::path& p) { FlipLastByte(p / "model.safetensors"); }, true,
       "model.safetensors: checksum does not match"},
  };
  for (const auto& c : kCases) {
    fs::remove_all(directory_);
    Save(1);
    Save(2);
    c.damage(directory_ / "2");
    EXPECT_EQ(List().at(0).damage.empty(), c.only_when_verified) << c.why;
    const auto found = List(/*verify=*/true);
    ASSERT_EQ(found.size(), 2u) << c.why;
    EXPECT_THAT(found[0].damage, testing::HasSubstr(c.says)) << c.why;
    EXPECT_EQ(found[1].damage, "") << c.why;
  }
}

TEST_F(CheckpointFilesTest, OnesThatWereSetAsideAreDamaged) {
  Save(1);
  Save(2);
  fs::rename(directory_ / "2", directory_ / ".damaged-2");
  fs::create_directories(directory_ / ".damaged-2-2");
  const auto found = List();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].step, 2);
  EXPECT_NE(found[0].damage, "");
  EXPECT_NE(found[1].damage, "");
  EXPECT_EQ(found[2].damage, "");
}

// Someone may remove a checkpoint after it is written and before it is linked. The next checkpoint is linked instead,
// and the job goes on.
TEST_F(CheckpointFilesTest, LinkingWhatWentMeanwhileIsTriedAgain) {
  Save(3);
  const fs::path job = dir_.path(), source = directory_ / "3" / "model.safetensors";
  ASSERT_TRUE(LinkArtifact(source, job, "last.safetensors").ok());
  fs::remove_all(directory_);
  const absl::Status linked = LinkArtifact(source, job, "last.safetensors");
  EXPECT_TRUE(IsTransient(linked)) << linked;
  EXPECT_THAT(std::string(linked.message()), testing::HasSubstr(source.string()));
  EXPECT_TRUE(fs::exists(job / "artifacts/last.safetensors")) << "what was linked before stays";
}

}  // namespace
}  // namespace permafrost::train
