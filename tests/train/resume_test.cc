// Tests a resumed run before and after its first step: the executables of its checkpoint return one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "device/cpu/storage.h"
#include "node_cases.h"
#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/loop/torch_runner.h"

namespace permafrost::train {
namespace {

// Records every reported state of the cache.
class History final : public Recorder {
 public:
  void OnGraphCache(const graphcache::Snapshot& snapshot,
                    std::shared_ptr<const std::vector<graphcache::EntryInfo>> list) override {
    Recorder::OnGraphCache(snapshot, std::move(list));
    caches.push_back(snapshot);
  }
  std::vector<graphcache::Snapshot> caches;
};

class ResumeTest : public testing::Test {
 protected:
  void SetUp() override {
    set_ = ImportTinyGraphs(dir_.path(), 100);
    runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
  }
  static spec::TrainOptions Options() {
    spec::TrainOptions options;
    options.model = {.hidden_channels = 16, .num_layers = 2};
    options.batch_size = 9;  // 9 steps per epoch
    options.epochs = 4;
    options.seed = 3;
    options.graph_cache.freeze_at = 6;
    options.graph_cache.shapes = spec::Shapes::kExact;
    return options;
  }
  absl::StatusOr<RunOutcome> Run(const std::string& job, RunContext& context) {
    return runner_->Run({.options = Options(), .dataset = set_, .job_directory = dir_.path() / job}, context);
  }
  static auto StopAt(int64_t step) {
    return [step](const Progress& p) { return p.step >= step ? StopRequest::kDrain : StopRequest::kNone; };
  }
  std::string Weights(const std::string& job) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / kLastWeightsFile);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> set_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(ResumeTest, CapturesAgainOnlyWhatAStepUses) {
  Recorder whole, first;
  ASSERT_TRUE(Run("whole", whole).ok());
  first.stop = StopAt(20);
  ASSERT_TRUE(Run("job", first).ok());
  ASSERT_TRUE(first.cache.frozen);

  // This run stops before its first step. It has captured nothing, but its checkpoint still lists every entry.
  History stopped;
  stopped.stop = [&](const Progress&) { return stopped.cache.frozen ? StopRequest::kDrain : StopRequest::kNone; };
  ASSERT_TRUE(Run("job", stopped).ok());
  // This run makes one step.
  History second;
  second.stop = StopAt(21);
  ASSERT_TRUE(Run("job", second).ok());
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const graphcache::ModeStats &before = first.cache.of(mode), &after = stopped.cache.of(mode);
    EXPECT_EQ(after.captures, before.captures);
    EXPECT_EQ(after.recaptures, 0);
    EXPECT_EQ(after.entries, before.entries);
    EXPECT_EQ(after.entry_bytes, before.entry_bytes);
    EXPECT_EQ(after.awaiting_recapture, before.entries);
  }
  EXPECT_EQ(second.cache.of(Mode::kTrain).recaptures, 1);
  EXPECT_EQ(second.cache.of(Mode::kTrain).awaiting_recapture, first.cache.of(Mode::kTrain).entries - 1);
  EXPECT_EQ(second.cache.of(Mode::kEval).recaptures, 0);

  History last;
  ASSERT_TRUE(Run("job", last).ok());
  EXPECT_EQ(Weights("job"), Weights("whole"));
  EXPECT_GT(last.cache.of(Mode::kTrain).recaptures, 1);
  // The cache is frozen from the first report to the last, and counts the returning entries as held all the time.
  for (const graphcache::Snapshot& cache : last.caches) {
    ASSERT_TRUE(cache.frozen);
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      const graphcache::ModeStats& now = cache.of(mode);
      ASSERT_EQ(now.entries, first.cache.of(mode).entries);
      ASSERT_EQ(now.entry_bytes, first.cache.of(mode).entry_bytes);
      ASSERT_EQ(now.frozen_captures, 0);
      ASSERT_EQ(now.captures - now.recaptures, first.cache.of(mode).captures) << "nothing new was captured";
    }
  }
}

// Returns other graphs than ImportTinyGraphs, with the same numbers of graphs and categories, so that the same model
// fits.
std::shared_ptr<const data::GraphSet> ImportOtherGraphs(const std::filesystem::path& directory) {
  std::vector<TinyGraph> set(100);
  for (unsigned g = 0; g < set.size(); ++g) {
    const unsigned nodes = 1 + g % 12;
    for (unsigned v = 0; v < nodes; ++v) set[g].categories.push_back((g + v) % 3);
    for (unsigned v = 1; v < nodes; ++v) {
      set[g].edges.emplace_back(v, v - 1);
      set[g].edge_categories.push_back(v % 2);
    }
    set[g].label = 0.01 * g;
  }
  return ImportGraphs(directory, set);
}

void ExpectOtherData(const absl::Status& status, const Recorder& told) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(GetReason(status).reason, "DATASET_CHANGED");
  EXPECT_FALSE(IsTransient(status)) << "the job fails: nothing but its owner brings the data back";
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("than the checkpoint of step 20 was trained on"));
  EXPECT_EQ(told.progress.step, 0) << "no step was taken on other data";
}

TEST_F(ResumeTest, OtherDataUnderTheNameOfTheDatasetIsRefusedAndTheSameImportedAnewIsNot) {
  Recorder whole, first, refused, last;
  ASSERT_TRUE(Run("whole", whole).ok());
  first.stop = StopAt(20);
  ASSERT_TRUE(Run("job", first).ok());

  const auto before = std::exchange(set_, ImportOtherGraphs(dir_.path() / "other"));
  ASSERT_EQ(set_->summary().node_features.max, before->summary().node_features.max);
  ASSERT_EQ(set_->summary().edge_features.max, before->summary().edge_features.max);
  ExpectOtherData(Run("job", refused).status(), refused);

  set_ = ImportTinyGraphs(dir_.path() / "again", 100);
  const absl::Status resumed = Run("job", last).status();
  ASSERT_TRUE(resumed.ok()) << resumed;
  EXPECT_EQ(Weights("job"), Weights("whole"));
}

TEST_F(ResumeTest, OtherDataOfALargeGraphIsRefusedToo) {
  spec::TrainOptions options = SampledJob(spec::Architecture::kSage);  // 5 steps per epoch
  options.epochs = 8;
  const auto run = [&](int nodes, const std::string& folder, RunContext& context) {
    return runner_->Run({.options = options,
                         .dataset = WriteTinyGraph(dir_.path() / folder, {.nodes = nodes}),
                         .job_directory = dir_.path() / "node-job"},
                        context);
  };
  Recorder first, refused, last;
  first.stop = StopAt(20);
  ASSERT_TRUE(run(400, "graph", first).ok());
  ExpectOtherData(run(401, "other-graph", refused).status(), refused);
  const absl::Status resumed = run(400, "graph-again", last).status();
  EXPECT_TRUE(resumed.ok()) << resumed;
  EXPECT_THAT(last.log, testing::HasSubstr("resumed from the checkpoint of step 20"));
}

// The first versions recorded no checksum of the data, and later ones that of the whole store.
TEST_F(ResumeTest, ACheckpointThatKnowsItsDataOtherwiseIsResumedFrom) {
  ASSERT_NE(set_->content_checksum(), set_->checksum());
  for (const bool by_store : {false, true}) {
    const std::string job = by_store ? "by-store" : "unknown";
    Recorder first, last;
    first.stop = StopAt(20);
    ASSERT_TRUE(Run(job, first).ok());
    const auto manifest_of = [&](int64_t step) {
      return dir_.path() / job / "checkpoints" / std::to_string(step) / "state.json";
    };
    auto manifest = nlohmann::json::parse(*ReadFile(manifest_of(20)));
    nlohmann::json& state = manifest["checkpoint"]["state"];
    ASSERT_EQ(state.at("dataset_checksum").get<uint64_t>(), set_->content_checksum());
    if (by_store) {
      state["dataset_checksum"] = set_->checksum();
    } else {
      state.erase("dataset_checksum");
    }
    manifest["xxh3"] = HashHex(Hash64(manifest["checkpoint"].dump()));
    ASSERT_TRUE(WriteFileAtomic(manifest_of(20), manifest.dump(1)).ok());
    const absl::Status resumed = Run(job, last).status();
    ASSERT_TRUE(resumed.ok()) << resumed;
    EXPECT_THAT(last.log, testing::HasSubstr("resumed from the checkpoint of step 20"));
    const auto saved = nlohmann::json::parse(*ReadFile(manifest_of(36)));
    EXPECT_EQ(saved["checkpoint"]["state"].at("dataset_checksum").get<uint64_t>(), set_->content_checksum())
        << "from here on it is known";
  }
}

// Measures the peak of tensor storage during the warm-up, beyond what was held before it.
class WarmUpPeak final : public Recorder {
 public:
  void OnProgress(const Progress& p) override {
    if (p.warm_up_total > 0 && progress.warm_up_total == 0) {
      device::RestartStoragePeak();
      before_ = device::ReadStorageUse().bytes;
    }
    Recorder::OnProgress(p);
  }
  void OnGraphCache(const graphcache::Snapshot& snapshot,
                    std::shared_ptr<const std::vector<graphcache::EntryInfo>> list) override {
    Recorder::OnGraphCache(snapshot, std::move(list));
    if (progress.warm_up_total > 0) bytes = std::max(bytes, device::ReadStorageUse().peak_bytes - before_);
  }
  int64_t bytes = 0;

 private:
  int64_t before_ = 0;
};

// The moments of such a wide model are far larger than its step on small graphs.
TEST_F(ResumeTest, TheWarmUpOfAResumeCopiesNoMoments) {
  spec::TrainOptions options = Options();
  options.model = {.hidden_channels = 256, .num_layers = 3};
  options.graph_cache = {};
  const auto run = [&](const std::string& job, Recorder& recorder) {
    const auto outcome =
        runner_->Run({.options = options, .dataset = set_, .job_directory = dir_.path() / job}, recorder);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
  };
  WarmUpPeak whole, begun, resumed;
  run("whole", whole);
  begun.stop = StopAt(20);
  run("job", begun);
  run("job", resumed);
  EXPECT_THAT(resumed.log, testing::HasSubstr("resumed from the checkpoint of step 20"));
  ASSERT_GT(begun.bytes, 0) << "no warm-up was met";
  ASSERT_GT(resumed.bytes, 0) << "no warm-up was met";
  EXPECT_LE(static_cast<double>(resumed.bytes), 1.05 * static_cast<double>(begun.bytes));
  EXPECT_EQ(Weights("job"), Weights("whole"));
}

// A command in the middle of a job causes a warm-up, during which the moments are in a file.
TEST_F(ResumeTest, NorDoesThatOfACommandInTheMidstOfAJob) {
  spec::TrainOptions options = Options();
  options.model = {.hidden_channels = 256, .num_layers = 3};
  const auto run = [&](const std::string& job, const spec::PolicyOptions& cache, Recorder& recorder) {
    options.graph_cache = cache;
    std::filesystem::create_directories(dir_.path() / job);  // the daemon creates it before a run
    const auto outcome =
        runner_->Run({.options = options, .dataset = set_, .job_directory = dir_.path() / job}, recorder);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
  };
  const spec::PolicyOptions ladder{.policy = spec::Policy::kFreeze, .shapes = spec::Shapes::kLadder};
  const std::vector<graphcache::Command> commands = {
      {.sequence = 1,
       .kind = graphcache::CommandKind::kUpdatePolicy,
       .update = {.policy = spec::Policy::kFreeze, .shapes = spec::Shapes::kLadder},
       .step = 20}};
  WarmUpPeak begun, commanded, stopped, resumed;
  run("begun", ladder, begun);
  commanded.commands = stopped.commands = resumed.commands = commands;
  run("commanded", {.policy = spec::Policy::kNever}, commanded);
  ASSERT_GT(begun.bytes, 0) << "no warm-up was met";
  ASSERT_GT(commanded.bytes, 0) << "no warm-up was met";
  EXPECT_LE(static_cast<double>(commanded.bytes), 1.05 * static_cast<double>(begun.bytes));
  EXPECT_THAT(commanded.log, testing::Not(testing::HasSubstr("copies the optimizer's state")));
  // A resumed run obeys the command at the same step.
  stopped.stop = StopAt(20);
  run("stopped", {.policy = spec::Policy::kNever}, stopped);
  run("stopped", {.policy = spec::Policy::kNever}, resumed);
  EXPECT_EQ(Weights("commanded"), Weights("stopped"));
}

}  // namespace
}  // namespace permafrost::train
