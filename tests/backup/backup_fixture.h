// A state directory with a database and files of jobs, and a root directory for backups.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "backup/backup.h"
#include "base/hash.h"
#include "jobs/job_store.h"
#include "temp_dir.h"

namespace permafrost::backup {

namespace fs = std::filesystem;

inline bool GoOn(int64_t /*done*/, int64_t /*total*/) { return true; }

inline void Put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string Get(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Writes a checkpoint as a run publishes it: it appears complete under its name, or not at all.
inline void PutCheckpoint(const fs::path& job, int64_t step) {
  const std::string weights(20'000, static_cast<char>('a' + step % 26));
  const fs::path making = job / "checkpoints" / absl::StrCat(".tmp-", step);
  Put(making / "model.safetensors", weights);
  const nlohmann::json body = {
      {"version", 1},
      {"state", {{"step", step}, {"epoch", 0}, {"batch", step}, {"best_epoch", 0}}},
      {"files", {{"model.safetensors", {{"bytes", weights.size()}, {"xxh3", HashHex(Hash64(weights))}}}}}};
  const nlohmann::json manifest = {{"checkpoint", body}, {"xxh3", HashHex(Hash64(body.dump()))}};
  Put(making / "state.json", manifest.dump(1));
  fs::rename(making, job / "checkpoints" / absl::StrCat(step));
}

class BackupTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_);
    auto store = jobs::JobStore::Open(state_ / "permafrost.db");
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // `change` edits the record before it is stored.
  jobs::Job AddJob(
      const std::string& id, jobs::JobState state, const std::function<void(jobs::Job&)>& change = [](jobs::Job&) {}) {
    jobs::Job job;
    job.id = JobId(id);
    job.spec.train.dataset = DatasetId("zinc");
    job.state = state;
    job.create_time = absl::FromUnixSeconds(1);
    change(job);
    EXPECT_TRUE(store_->Insert(job).ok());
    Put(JobPath(id) / "log", "a line\n");
    return job;
  }
  fs::path JobPath(const std::string& id) const { return state_ / "jobs" / id; }
  absl::StatusOr<Summary> MakeOne(const std::string& name, bool with_datasets = false, const OnProgress& tell = GoOn) {
    return Make({.state_dir = state_, .root = root_, .directory = name, .with_datasets = with_datasets, .version = "1"},
                tell);
  }

  // Returns the names of what lies in the root, sorted.
  std::vector<std::string> InRoot() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  const TempDir dir_;
  const fs::path state_ = [this] {
    fs::create_directories(dir_.path() / "state");
    return dir_.path() / "state";
  }();
  const fs::path root_ = dir_.path() / "root";
  std::unique_ptr<jobs::JobStore> store_;
};

}  // namespace permafrost::backup
