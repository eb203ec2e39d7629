#include "train/loop/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "device/cpu/storage.h"
#include "file_size_limit.h"
#include "nn/safetensors.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;

Checkpoint Make(int64_t step, bool with_best = true) {
  at::manual_seed(step);
  Checkpoint c;
  c.state.step = step;
  c.state.position = {2, 7};
  c.state.train_seconds = 0.1 + 0.2;  // needs all its digits
  c.state.seed = ~uint64_t{0};
  c.state.threads = 2;
  c.state.dataset_checksum = ~uint64_t{7};
  c.model = {{"w", at::randn({4, 4})}, {"n", at::full({}, step, at::kLong)}};
  c.optimizer = {{"exp_avg.w", at::randn({4, 4})}};
  c.accumulators = {{"loss_sum", at::randn({}, at::kDouble)}};
  if (with_best) {
    c.state.best_epoch = 2;
    c.state.best_valid_metric = 1.0 / 3;
    c.best = {{"w", at::randn({4, 4})}};
  }
  return c;
}

void ExpectEqual(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.state.step, b.state.step);
  EXPECT_EQ(a.state.position, b.state.position);
  EXPECT_EQ(a.state.train_seconds, b.state.train_seconds);
  EXPECT_EQ(a.state.seed, b.state.seed);
  EXPECT_EQ(a.state.dataset_checksum, b.state.dataset_checksum);
  EXPECT_EQ(a.state.best_epoch, b.state.best_epoch);
  EXPECT_THAT(a.state.best_valid_metric, testing::NanSensitiveDoubleEq(b.state.best_valid_metric));
  for (const auto part : {&Checkpoint::model, &Checkpoint::optimizer, &Checkpoint::accumulators, &Checkpoint::best}) {
    ASSERT_EQ((a.*part).size(), (b.*part).size());
    for (size_t i = 0; i < (a.*part).size(); ++i) EXPECT_TRUE(at::equal((a.*part)[i].value, (b.*part)[i].value));
  }
}

// Returns the newest checkpoint, with the tensors from which a run continues.
absl::StatusOr<std::optional<Checkpoint>> LoadNewest(const CheckpointStore& store) {
  PF_ASSIGN_OR_RETURN(std::optional<Checkpoint> found, store.FindNewest());
  if (!found) return found;
  PF_RETURN_IF_ERROR(
      store.LoadTensors(found->state.step, [&](CheckpointPart part, const std::vector<nn::NamedTensor>& tensors) {
        (*found).*part = tensors;
        return absl::OkStatus();
      }));
  return found;
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointStore Store(int64_t keep = 2) {
    return {dir_.path() / "checkpoints", keep, {{"format", "pt"}}, [this](std::string_view w) {
              warnings_.emplace_back(w);
            }};
  }
  fs::path File(int64_t step, const std::string& name) {
    return dir_.path() / "checkpoints" / std::to_string(step) / name;
  }
  void Flip(const fs::path& path, std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

  std::set<std::string> Names() {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_.path() / "checkpoints")) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  // Changes the body of a manifest, and updates its checksum.
  void Rewrite(int64_t step, const std::function<void(nlohmann::json&)>& change) {
    auto manifest = nlohmann::json::parse(*ReadFile(File(step, "state.json")));
    change(manifest["checkpoint"]);
    manifest["xxh3"] = HashHex(Hash64(manifest["checkpoint"].dump()));
    ASSERT_TRUE(WriteFileAtomic(File(step, "state.json"), manifest.dump(1)).ok());
  }
  void SetVersion(int64_t step, int version) {
    Rewrite(step, [version](nlohmann::json& body) { body["version"] = version; });
  }

  TempDir dir_;
  std::vector<std::string> warnings_;
};

TEST_F(CheckpointTest, NothingThereIsNoError) {
  const auto found = Store().FindNewest();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value());
}

TEST_F(CheckpointTest, GivesBackEveryBit) {
  for (const bool with_best : {false, true}) {
    ASSERT_TRUE(Store().Save(Make(10, with_best)).ok());
    const auto found = LoadNewest(Store());
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(found->has_value());
    ExpectEqual(**found, Make(10, with_best));
  }
}

TEST_F(CheckpointTest, KeepsTheNewest) {
  CheckpointStore store = Store(2);
  for (const int64_t step : {5, 9, 10, 100}) ASSERT_TRUE(store.Save(Make(step)).ok());
  EXPECT_FALSE(fs::exists(File(9, "state.json"))) << "9 is older than 10, though it sorts after it as text";
  EXPECT_TRUE(fs::exists(File(10, "state.json")));
  EXPECT_EQ((*store.FindNewest())->state.step, 100);
}

TEST_F(CheckpointTest, DamageIsSeenInEveryFileAndTheOlderOneServes) {
  for (const char* file :
       {"state.json", "model.safetensors", "optimizer.safetensors", "accumulators.safetensors", "best.safetensors"}) {
    ASSERT_TRUE(Store().Save(Make(1)).ok());
    ASSERT_TRUE(Store().Save(Make(2)).ok());
    Flip(File(2, file), static_cast<std::streamoff>(fs::file_size(File(2, file)) / 2));
    warnings_.clear();
    const auto found = Store().FindNewest();
    ASSERT_TRUE(found.ok()) << file << ": " << found.status();
    EXPECT_EQ((*found)->state.step, 1) << file;
    ASSERT_EQ(warnings_.size(), 1U) << file;
    EXPECT_THAT(warnings_[0], testing::HasSubstr(file));
  }
}

// A crash may cut a file short, and a disk or memory may flip a bit. Both are detected in any place, and the run goes
// on from the checkpoint before.
TEST_F(CheckpointTest, EveryCutAndAThousandFlippedBitsAreSeen) {
  constexpr size_t kPage = 4096;
  const fs::path checkpoints = dir_.path() / "checkpoints";
  Checkpoint newest = Make(2);
  // Makes each tensor several pages long, and also the manifest, which describes the cache.
  for (std::vector<nn::NamedTensor>* part : {&newest.model, &newest.optimizer, &newest.best, &newest.averaged}) {
    part->push_back({"wide", at::randn({3000})});
  }
  newest.accumulators.push_back({"wide", at::randn({1500}, at::kDouble)});
  newest.state.skipped_steps.resize(1000);
  std::iota(newest.state.skipped_steps.begin(), newest.state.skipped_steps.end(), int64_t{1'000'000});
  ASSERT_TRUE(Store().Save(Make(1)).ok());
  ASSERT_TRUE(Store().Save(newest).ok());
  std::map<std::string, std::string> whole;
  for (const auto& entry : fs::directory_iterator(checkpoints / "2")) {
    whole[entry.path().filename()] = *ReadFile(entry.path());
    ASSERT_GT(whole[entry.path().filename()].size(), 2 * kPage) << entry.path();
  }
  ASSERT_EQ(whole.size(), 6U);
  const fs::path set_aside = checkpoints / ".damaged-2";
  // Replaces a file of checkpoint 2 by `data`, and restores the file afterwards.
  const auto expect_seen = [&](const std::string& file, const std::string& data, const std::string& what) {
    std::ofstream(File(2, file), std::ios::binary) << data;
    const auto found = Store().FindNewest();
    ASSERT_TRUE(found.ok() && found->has_value()) << file << ", " << what << ": " << found.status();
    ASSERT_EQ((*found)->state.step, 1) << file << ", " << what << ": nobody saw it";
    ASSERT_TRUE(fs::exists(set_aside)) << file << ", " << what;
    std::ofstream(set_aside / file, std::ios::binary) << whole[file];
    fs::rename(set_aside, checkpoints / "2");
  };
  for (const auto& [file, data] : whole) {
    for (size_t kept = 0; kept < data.size(); kept += kPage) {
      expect_seen(file, data.substr(0, kept), absl::StrCat("cut to ", kept, " bytes"));
      if (HasFatalFailure()) return;
    }
    expect_seen(file, data.substr(0, data.size() - 1), "cut by its last byte");
    if (HasFatalFailure()) return;
  }
  std::mt19937_64 random(5);
  for (int flip = 0; flip < 1000; ++flip) {
    const auto& [file, data] = *std::next(whole.begin(), flip % std::ssize(whole));
    const size_t at = random() % data.size(), bit = random() % 8;
    std::string flipped = data;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
    expect_seen(file, flipped, absl::StrCat("bit ", bit, " of byte ", at));
    if (HasFatalFailure()) return;
  }
  const auto found = Store().FindNewest();
  ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
  EXPECT_EQ((*found)->state.step, 2) << "put back as it was, it is whole";
}

// There may be no memory for all parts beside the run's own tensors.
TEST_F(CheckpointTest, AResumeHasOnePartInMemoryAtATime) {
  constexpr int64_t kValues = 1 << 18, kPartBytes = kValues * sizeof(float);
  device::InstallStorageAllocator();
  Checkpoint written = Make(4);
  for (const CheckpointPart part : {&Checkpoint::model, &Checkpoint::optimizer, &Checkpoint::accumulators,
                                    &Checkpoint::best, &Checkpoint::averaged}) {
    written.*part = {{"wide", at::zeros({kValues})}};
  }
  ASSERT_TRUE(Store().Save(written).ok());
  written = Checkpoint();
  const int64_t before = device::ReadStorageUse().bytes;
  ASSERT_TRUE(Store().FindNewest().ok());
  EXPECT_EQ(device::ReadStorageUse().bytes, before);
  int parts = 0;
  const auto take = [&](CheckpointPart part, const std::vector<nn::NamedTensor>& tensors) {
    EXPECT_TRUE(part != &Checkpoint::averaged) << "nobody goes on from it";
    EXPECT_EQ(tensors.size(), 1U);
    EXPECT_LT(device::ReadStorageUse().bytes - before, 2 * kPartBytes);
    ++parts;
    return absl::OkStatus();
  };
  ASSERT_TRUE(Store().LoadTensors(4, take).ok());
  EXPECT_EQ(parts, 4);
  EXPECT_EQ(device::ReadStorageUse().bytes, before);
}

TEST_F(CheckpointTest, WhatTakesATensorMayRefuseIt) {
  ASSERT_TRUE(Store().Save(Make(4, /*with_best=*/false)).ok());
  const auto refuse_empty = [](CheckpointPart part, const std::vector<nn::NamedTensor>& tensors) -> absl::Status {
    EXPECT_EQ(tensors.empty(), part == &Checkpoint::best);
    return tensors.empty() ? absl::InvalidArgumentError("empty") : absl::OkStatus();
  };
  EXPECT_EQ(Store().LoadTensors(4, refuse_empty).message(), "empty");
  EXPECT_TRUE(absl::IsDataLoss(Store().LoadTensors(5, refuse_empty))) << "there is none";
}

TEST_F(CheckpointTest, EveryTensorCountsForWhatItsFilesTake) {
  Checkpoint c;
  EXPECT_EQ(TensorBytes(c), 0U);
  uint64_t bytes = 0;
  for (const auto part : {&Checkpoint::model, &Checkpoint::optimizer, &Checkpoint::accumulators, &Checkpoint::best,
                          &Checkpoint::averaged}) {
    (c.*part).push_back({"w", at::zeros({7})});
    (c.*part).push_back({"n", at::zeros({3}, at::kDouble)});
    bytes += 7 * 4 + 3 * 8;
    EXPECT_EQ(TensorBytes(c), bytes);
  }
}

TEST_F(CheckpointTest, AManifestThatSaysTheSameInOtherBytesIsDamaged) {
  ASSERT_TRUE(Store().Save(Make(1)).ok());
  ASSERT_TRUE(Store().Save(Make(2)).ok());
  std::ofstream(File(2, "state.json"), std::ios::app) << ' ';
  EXPECT_EQ((*Store().FindNewest())->state.step, 1);
}

TEST_F(CheckpointTest, ADamagedNewerOneDoesNotPushOutWhatTheResumedRunSaves) {
  CheckpointStore store = Store(1);
  ASSERT_TRUE(store.Save(Make(5)).ok());
  // Leaves two checkpoints, as a crash does before the older one is pruned.
  fs::copy(dir_.path() / "checkpoints/5", dir_.path() / "elsewhere", fs::copy_options::recursive);
  ASSERT_TRUE(store.Save(Make(9)).ok());
  fs::rename(dir_.path() / "elsewhere", dir_.path() / "checkpoints/5");
  Flip(File(9, "model.safetensors"), 100);
  EXPECT_EQ((*store.FindNewest())->state.step, 5);
  ASSERT_TRUE(store.Save(Make(7)).ok());
  EXPECT_EQ((*store.FindNewest())->state.step, 7);
}

// A damaged checkpoint may still be useful to someone, and more of it may be intact than the checksum can show.
TEST_F(CheckpointTest, ADamagedOneIsSetAsideWholeAndNeverDeleted) {
  for (int time = 0; time < 2; ++time) {
    ASSERT_TRUE(Store().Save(Make(1)).ok());
    ASSERT_TRUE(Store().Save(Make(2)).ok());
    Flip(File(2, "model.safetensors"), 100);
    EXPECT_EQ((*Store().FindNewest())->state.step, 1);
  }
  for (const char* name : {".damaged-2", ".damaged-2-2"}) {
    EXPECT_TRUE(fs::exists(dir_.path() / "checkpoints" / name / "optimizer.safetensors")) << name;
  }
  EXPECT_EQ(Names(), (std::set<std::string>{".damaged-2", ".damaged-2-2", "1"}));
}

TEST_F(CheckpointTest, WhatCannotBeReadJustNowIsNotDamage) {
  ASSERT_TRUE(Store().Save(Make(1)).ok());
  ASSERT_TRUE(Store().Save(Make(2)).ok());
  const auto expect_transient = [&](const char* why) {
    const absl::Status status = Store().FindNewest().status();
    EXPECT_TRUE(IsTransient(status)) << why << ": " << status;
    EXPECT_FALSE(absl::IsDataLoss(status)) << why << ": " << status;
  };
  {
    const NoDescriptors exhausted;
    expect_transient("too many open files, met by the directory");
  }
  // A loop of symbolic links exists, but open() refuses it, whatever rights the test has. It acts like an error of
  // the disk.
  for (const char* file : {"state.json", "optimizer.safetensors"}) {
    fs::rename(File(2, file), dir_.path() / "away");
    fs::create_symlink(File(2, file), File(2, file));
    expect_transient(file);
    fs::remove(File(2, file));
    fs::rename(dir_.path() / "away", File(2, file));
  }
  EXPECT_EQ(Names(), (std::set<std::string>{"1", "2"})) << "nothing was set aside";
  EXPECT_EQ((*Store().FindNewest())->state.step, 2);
}

TEST_F(CheckpointTest, ADirectoryThatCannotBeListedIsNotANewRun) {
  fs::create_symlink(dir_.path() / "checkpoints", dir_.path() / "checkpoints");
  const auto found = Store().FindNewest();
  EXPECT_FALSE(found.ok());
  EXPECT_TRUE(IsTransient(found.status())) << found.status();
}

TEST_F(CheckpointTest, OneOfANewerBuildIsKeptAndNamedAsSuch) {
  ASSERT_TRUE(Store().Save(Make(1)).ok());
  ASSERT_TRUE(Store().Save(Make(2)).ok());
  SetVersion(2, 2);
  const absl::Status status = Store().FindNewest().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(IsTransient(status)) << "the newer build goes on from it";
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("newer permafrostd"));
  EXPECT_EQ(Names(), (std::set<std::string>{"1", "2"}));
}

TEST_F(CheckpointTest, AStateThatLacksAFieldIsDamageAndNotAnException) {
  ASSERT_TRUE(Store().Save(Make(1)).ok());
  ASSERT_TRUE(Store().Save(Make(2)).ok());
  Rewrite(2, [](nlohmann::json& body) { body["state"].erase("seed"); });
  EXPECT_EQ((*Store().FindNewest())->state.step, 1);
  EXPECT_EQ(Names(), (std::set<std::string>{".damaged-2", "1"}));
}

TEST_F(CheckpointTest, AHalfWrittenOneIsGoneAtOnceAndTheOldOnesStay) {
  ASSERT_TRUE(Store(1).Save(Make(1)).ok());
  std::optional<FileSizeLimit> limit(64);
  for (const int64_t step : {1, 2}) {
    const absl::Status status = Store(1).Save(Make(step));
    EXPECT_TRUE(IsTransient(status)) << status;
    EXPECT_EQ(Names(), (std::set<std::string>{"1"})) << step;
  }
  limit.reset();
  ExpectEqual(**LoadNewest(Store(1)), Make(1));
  ASSERT_TRUE(Store(1).Save(Make(2)).ok());
  EXPECT_EQ(Names(), (std::set<std::string>{"2"}));
}

TEST_F(CheckpointTest, MissingFileIsDamage) {
  ASSERT_TRUE(Store().Save(Make(1)).ok());
  ASSERT_TRUE(Store().Save(Make(2)).ok());
  fs::remove(File(2, "optimizer.safetensors"));
  EXPECT_EQ((*Store().FindNewest())->state.step, 1);
}

TEST_F(CheckpointTest, AllDamagedIsAnErrorRatherThanASilentNewRun) {
  ASSERT_TRUE(Store().Save(Make(1)).ok());
  Flip(File(1, "model.safetensors"), 100);
  const auto found = Store().FindNewest();
  EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss) << found.status();
}

TEST_F(CheckpointTest, CrashBetweenTheTwoRenamesLosesNothing) {
  ASSERT_TRUE(Store().Save(Make(3)).ok());
  fs::rename(dir_.path() / "checkpoints/3", dir_.path() / "checkpoints/.old-3");
  fs::create_directories(dir_.path() / "checkpoints/.tmp-3");
  ExpectEqual(**LoadNewest(Store()), Make(3));
  EXPECT_FALSE(fs::exists(dir_.path() / "checkpoints/.tmp-3"));
  EXPECT_FALSE(fs::exists(dir_.path() / "checkpoints/.old-3"));
}

TEST_F(CheckpointTest, WeightsFileIsSafetensorsWithMetadata) {
  ASSERT_TRUE(Store().Save(Make(4)).ok());
  const auto data = ReadFile(Store().WeightsFile(4));
  ASSERT_TRUE(data.ok());
  const auto file = nn::DecodeSafetensors(*data);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata.at("format"), "pt");
}

}  // namespace
}  // namespace permafrost::train
