// Tests that a job ends with the same bits, however the features of a large graph are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graph.h"
#include "train/loop/torch_runner.h"

namespace permafrost::train {
namespace {

using data::FeatureReader;

class FeatureReaderTest : public testing::Test {
 protected:
  void SetUp() override { graph_ = WriteTinyGraph(dir_.path() / "graph"); }
  static spec::TrainOptions Options(spec::Architecture architecture) {
    spec::TrainOptions options;
    options.model = DefaultOptions(spec::ModelLevel::kNode).model;
    options.model.architecture = architecture;
    options.model.hidden_channels = 8;
    options.loss = spec::Loss::kCrossEntropy;
    options.batch_size = 16;
    options.epochs = 3;
    options.seed = 5;
    options.nodes.fan_outs = {4, 3};
    return options;
  }
  // Returns the last weights. Sets `rows` to what the run reported about its reading.
  std::string Weights(const spec::TrainOptions& options, const data::RowCaches::Options& features, int threads = 2) {
    const auto runner = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = threads, .features = features});
    Recorder recorder;
    const auto job = dir_.path() / std::to_string(++jobs_);
    const auto outcome = runner->Run({.options = options, .dataset = graph_, .job_directory = job}, recorder);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    const auto look_ahead = recorder.progress.look_ahead;
    rows = look_ahead ? look_ahead->rows : std::nullopt;
    const auto weights = ReadFile(job / "artifacts" / kLastWeightsFile);
    EXPECT_TRUE(weights.ok()) << weights.status();
    return weights.ok() ? *weights : "";
  }

  TempDir dir_;
  std::shared_ptr<const data::Graph> graph_;
  int jobs_ = 0;
  std::optional<data::RowReading> rows;
};

TEST_F(FeatureReaderTest, EveryReaderAndBudgetGivesTheSameWeights) {
  // These budgets hold all 400 rows of 32 bytes, about half of them, and fewer than one batch has.
  constexpr uint64_t kAll = 1 << 20, kBudgets[] = {kAll, 4400 + 200 * 104, 1};
  for (const spec::Architecture architecture : {spec::Architecture::kSage, spec::Architecture::kGcn}) {
    const spec::TrainOptions options = Options(architecture);
    const std::string mapped = Weights(options, {.reader = FeatureReader::kMapped});
    EXPECT_FALSE(rows);
    for (const FeatureReader reader : {FeatureReader::kUring, FeatureReader::kPread}) {
      for (const uint64_t budget : kBudgets) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(reader) << " " << budget);
        EXPECT_TRUE(Weights(options, {.reader = reader, .budget_bytes = budget, .rates = DiskRates{.depth = 4}}) ==
                    mapped);
        ASSERT_TRUE(rows);
        EXPECT_GT(rows->counters.hits, 0);
        EXPECT_GT(rows->counters.misses, 0);
        EXPECT_TRUE(budget != kAll || rows->counters.over_budget == 0);
        EXPECT_TRUE(budget != 1 || rows->counters.over_budget > 0);
      }
    }
  }
}

TEST_F(FeatureReaderTest, WithOneThreadToo) {
  const spec::TrainOptions options = Options(spec::Architecture::kSage);
  const data::RowCaches::Options reading{
      .reader = FeatureReader::kUring, .budget_bytes = 12'000, .rates = DiskRates{.depth = 4}};
  EXPECT_TRUE(Weights(options, reading, 1) == Weights(options, {.reader = FeatureReader::kMapped}, 1));
}

TEST_F(FeatureReaderTest, TheJobsLogSaysHowFeaturesAreRead) {
  const auto runner = *MakeTorchRunner(
      {.device = DeviceKind::kCpu,
       .threads = 1,
       .features = {.reader = FeatureReader::kPread, .budget_bytes = 100'000, .rates = DiskRates{.depth = 2}}});
  Recorder recorder;
  ASSERT_TRUE(
      runner
          ->Run(
              {.options = Options(spec::Architecture::kSage), .dataset = graph_, .job_directory = dir_.path() / "job"},
              recorder)
          .ok());
  EXPECT_THAT(recorder.log, testing::HasSubstr("read by pread, 8 at once; a cache of 0 MB (100 % of the rows)"));
}

}  // namespace
}  // namespace permafrost::train
