#include "train/planning/job_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/tasks/job_data.h"
#include "train/tasks/task.h"
#include "train/tiny_graph.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;

using graphcache::ShapeSchedule;
using testing::HasSubstr;

bool GoOn() { return true; }

class ScheduleStoreTest : public testing::Test {
 protected:
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(Folder())) files.push_back(entry.path());
    return files;
  }
  fs::path Folder() const { return dir_.path() / "plans"; }
  absl::StatusOr<ShapeSchedule> Plan(const spec::TrainOptions& options, const MemoryLimits& limits = kNoLimits) {
    return PlanJob(options, *GraphModelFor(options, set_->summary(), ""), *data::GraphExtents::Create(set_),
                   {.plans = &store_, .limits = limits}, "spec.", GoOn);
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> set_ = ImportTinyGraphs(dir_.path() / "set", 100);
  std::vector<std::string> warnings_;
  ScheduleStore store_{Folder(), [this](std::string_view line) { warnings_.emplace_back(line); }};
};

TEST_F(ScheduleStoreTest, KeepsAPlanWhole) {
  ShapeSchedule plan{.train_ceiling = {90, 180, 10},
                     .train_shapes = 0,
                     .known_train_shapes = 3,
                     .train_rungs = {{3, 4, 5}},
                     .eval_rungs = {{6, 7, 8}, {9, 10, 11}},
                     .train_schedule = {{{3, 4, 5}, 7}, {{90, 180, 10}, 0}},
                     .eval_schedule = {{{6, 7, 8}, 2}}};
  EXPECT_EQ(store_.Find("key"), std::nullopt);
  store_.Keep("key", plan);
  EXPECT_EQ(store_.Find("key"), plan);
  MakeLadders(3, plan);
  store_.Keep("key", plan);
  EXPECT_EQ(store_.Find("key"), plan);
  EXPECT_EQ(store_.Find("another"), std::nullopt);
  EXPECT_EQ(Files().size(), 1U);
}

TEST_F(ScheduleStoreTest, AJobThatSamplesTakesItsSizesFromThere) {
  const std::shared_ptr<const data::Graph> graph = WriteTinyGraph(dir_.path() / "graph");
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.batch_size = 13;
  options.nodes.fan_outs.assign(static_cast<size_t>(options.model.num_layers), 3);
  std::vector<std::string> lines;
  const auto make = [&] {
    lines.clear();
    return *Task::Create(options, graph, at::kCPU, 2, GoOn,
                         {.plans = &store_, .log = [&](std::string_view line) { lines.emplace_back(line); }});
  };
  const std::string key = SampledKey(options, *graph);
  ASSERT_FALSE(key.empty());
  EXPECT_EQ(store_.FindSizes(key), std::nullopt);
  const std::unique_ptr<Task> sampled = make();
  EXPECT_THAT(lines, testing::IsEmpty());
  std::optional<SampledSizes> kept = store_.FindSizes(key);
  ASSERT_TRUE(kept.has_value());
  EXPECT_GT((*kept)[0].size(), 10U);
  const std::unique_ptr<Task> same = make();
  EXPECT_THAT(lines, testing::ElementsAre("plan taken from " + store_.NameOf(key)));
  EXPECT_TRUE(fs::exists(dir_.path() / store_.NameOf(key)));
  EXPECT_EQ(same->plan(), sampled->plan());
  // The plan uses the stored sizes, so nothing was sampled.
  for (data::BlockSizes& sizes : (*kept)[0]) sizes.edges /= 4;
  store_.KeepSizes(key, *kept);
  EXPECT_LT(make()->plan().train_ceiling.edges, sampled->plan().train_ceiling.edges);
  EXPECT_NE(SampledKey(options, *graph, /*means_elsewhere=*/true), key);
  // Changes to what is drawn change the key. Other epochs and other rungs do not.
  for (const auto& [changes, change] : std::vector<std::pair<bool, std::function<void(spec::TrainOptions&)>>>{
           {true, [](spec::TrainOptions& o) { ++o.seed; }},
           {true, [](spec::TrainOptions& o) { ++o.batch_size; }},
           {true, [](spec::TrainOptions& o) { ++o.nodes.fan_outs[0]; }},
           {true, [](spec::TrainOptions& o) { o.nodes.eval_fan_outs = {2, 2, 2}; }},
           {true, [](spec::TrainOptions& o) { o.nodes.replace = true; }},
           {true, [](spec::TrainOptions& o) { o.nodes.disjoint = true; }},
           {true, [](spec::TrainOptions& o) { o.nodes.sampler = spec::SamplerKind::kLabor; }},
           {true, [](spec::TrainOptions& o) { o.links.enabled = true; }},
           {true, [](spec::TrainOptions& o) { o.batching = {.kind = spec::BatchingKind::kBudget, .max_edges = 900}; }},
           {true, [](spec::TrainOptions& o) { o.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 900}; }},
           {false, [](spec::TrainOptions& o) { ++o.epochs; }},
           {false, [](spec::TrainOptions& o) { o.graph_cache.rungs = 3; }}}) {
    spec::TrainOptions other = options;
    change(other);
    EXPECT_EQ(SampledKey(other, *graph) != key, changes);
  }
}

TEST_F(ScheduleStoreTest, EveryChangedByteIsFound) {
  store_.Keep("key", {.train_ceiling = {90, 180, 10}, .known_train_shapes = 3, .train_schedule = {{{3, 4, 5}, 7}}});
  const fs::path file = Files().at(0);
  const std::string text = *ReadFile(file);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = damaged[i] == '1' ? '2' : '1';
    ASSERT_TRUE(WriteFileAtomic(file, damaged).ok());
    EXPECT_EQ(store_.Find("key"), std::nullopt) << "byte " << i;
  }
  ASSERT_TRUE(WriteFileAtomic(file, text.substr(0, text.size() / 2)).ok());
  EXPECT_EQ(store_.Find("key"), std::nullopt);
  EXPECT_GE(warnings_.size(), text.size() / 2);
  EXPECT_THAT(warnings_.back(), HasSubstr("a kept shape plan is made anew: " + file.string()));
}

TEST_F(ScheduleStoreTest, KeepsSoManyAndRemovesNothingElse) {
  ASSERT_TRUE(CreateDirectories(Folder()).ok());
  const fs::path other = Folder() / "notes.plan";
  std::ofstream(other) << "mine";
  fs::last_write_time(other, fs::file_time_type::clock::now() - std::chrono::hours(99));
  const ShapeSchedule plan{.train_ceiling = {90, 180, 10}};
  for (size_t i = 0; i < ScheduleStore::kMostSchedules + 5; ++i) {
    store_.Keep(std::to_string(i), plan);
    for (const fs::path& file : Files()) {
      if (file != other) fs::last_write_time(file, fs::last_write_time(file) - std::chrono::seconds(1));
    }
  }
  EXPECT_TRUE(fs::exists(other));
  EXPECT_LE(Files().size(), ScheduleStore::kMostSchedules + 1);
  EXPECT_EQ(store_.Find("0"), std::nullopt);
  EXPECT_NE(store_.Find(std::to_string(ScheduleStore::kMostSchedules + 4)), std::nullopt);
}

TEST_F(ScheduleStoreTest, AFolderThatCannotBeWrittenCostsOnlyTheWalk) {
  std::ofstream(Folder()) << "a file";
  EXPECT_TRUE(Plan({.epochs = 2, .batch_size = 9}).ok());
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("a shape plan is not kept: ")));
}

// A stored plan is modified, so that a job that uses it can be recognised.
TEST_F(ScheduleStoreTest, AnEqualJobIsServedAndNoOther) {
  spec::TrainOptions options{.epochs = 3, .batch_size = 9, .seed = 5};
  options.graph_cache = {.shapes = spec::Shapes::kLadder, .rungs = 4};
  const ShapeSchedule walked = *Plan(options);
  ASSERT_TRUE(walked.ladders.has_value());
  EXPECT_EQ(walked.ladders->train.size(), 4U);
  EXPECT_EQ(*Plan(options), walked);
  EXPECT_THAT(warnings_, testing::IsEmpty());
  ShapeSchedule doctored = walked;
  doctored.known_train_shapes += 1000;
  store_.Keep(ScheduleKey(options, *set_, 4), doctored);
  EXPECT_EQ(*Plan(options), doctored);

  spec::TrainOptions equal = options;
  equal.optimizer.learning_rate *= 2;
  equal.model.hidden_channels *= 2;
  equal.graph_cache.audit_every = 7;
  EXPECT_EQ(*Plan(equal), doctored) << "neither the model nor audits change a shape";
  const std::pair<const char*, std::function<void(spec::TrainOptions&)>> others[] = {
      {"seed", [](spec::TrainOptions& o) { ++o.seed; }},
      {"epochs", [](spec::TrainOptions& o) { ++o.epochs; }},
      {"batch size", [](spec::TrainOptions& o) { ++o.batch_size; }},
      {"rungs", [](spec::TrainOptions& o) { ++o.graph_cache.rungs; }},
      {"batching", [](spec::TrainOptions& o) { o.batching.kind = spec::BatchingKind::kBalanced; }},
      {"max nodes", [](spec::TrainOptions& o) { o.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 99}; }},
      {"max edges",
       [](spec::TrainOptions& o) { o.batching = {.kind = spec::BatchingKind::kBudget, .max_edges = 99}; }}};
  std::set<std::string> keys = {ScheduleKey(options, *set_, 4)};
  for (const auto& [what, change] : others) {
    spec::TrainOptions other = options;
    change(other);
    EXPECT_TRUE(keys.insert(ScheduleKey(other, *set_, spec::RungsOf(other.graph_cache))).second) << what;
    EXPECT_LT(Plan(other)->known_train_shapes, 1000) << what;
  }
  const auto another_set = ImportTinyGraphs(dir_.path() / "other", 99);
  EXPECT_TRUE(keys.insert(ScheduleKey(options, *another_set, 4)).second);
}

// The estimate from mean sizes would miss a batch that contains the two largest graphs.
TEST_F(ScheduleStoreTest, MemoryIsJudgedByTheLargestBatchThereIs) {
  spec::TrainOptions options{.epochs = 2, .batch_size = 9};
  options.model.hidden_channels = 512;
  const ShapeSchedule plan = *Plan(options);
  const auto model = *GraphModelFor(options, set_->summary(), "");
  const auto needs = [&](const ShapeSchedule& of) {
    uint64_t limit = 1;
    const auto fits = [&] {
      Violations violations;
      const MemoryLimits limits{.process = limit};
      CheckFits(*MemoryOf(options, model, set_->summary(), of, limits, ""), limits, "", "", violations);
      return violations.ToStatus().ok();
    };
    while (!fits()) limit += limit / 256 + 1;
    return limit;
  };
  const uint64_t needed = needs(plan);
  EXPECT_TRUE(Plan(options, {.process = needed}).ok());
  const absl::Status refused = Plan(options, {.process = needed / 2}).status();
  ASSERT_EQ(GetViolations(refused).size(), 1U);
  EXPECT_THAT(GetViolations(refused)[0].description,
              HasSubstr(absl::StrCat("(batches of up to ", plan.train_ceiling.nodes, " nodes and ",
                                     plan.train_ceiling.edges, " edges); this process may use 0")));
  ShapeSchedule larger = plan;
  larger.eval_schedule.push_back({{4 * plan.train_ceiling.nodes, 1, 1}, 1});
  EXPECT_GT(needs(larger), needed) << "an evaluation batch may be the largest";
}

}  // namespace
}  // namespace permafrost::train
