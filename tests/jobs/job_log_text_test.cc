#include "jobs/job_log_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

Job AJob() {
  Job job;
  job.id = JobId("job-a");
  job.spec.train.dataset = DatasetId("zinc");
  job.spec.train.seed = 17;
  job.spec.priority = 3;
  return job;
}

TEST(JobLogTextTest, SubmittedNamesWhatMatters) {
  const std::string line = SubmittedLine(AJob());
  for (const char* part : {"job-a", "dataset zinc", "gine 4 x 64 mean pooling", "loss l1", "adam lr 0.001", "20 epochs",
                           "batch size 32", "seed 17", "priority 3"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
}

TEST(JobLogTextTest, SubmittedTellsHowANodeLevelJobSamples) {
  Job job = AJob();
  job.spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
  EXPECT_THAT(SubmittedLine(job), HasSubstr("sage 2 x 64, the whole graph a step, loss cross-entropy"));
  job.spec.train.nodes.fan_outs = {15, -1};
  EXPECT_THAT(SubmittedLine(job), HasSubstr("sage 2 x 64, fan-out 15,all, loss"));
  job.spec.train.nodes = {{15, 10}, {20, 20}, true, true, true};
  EXPECT_THAT(SubmittedLine(job), HasSubstr("fan-out 15,10 (evaluation 20,20), with replacement, by edge weight, "
                                            "evaluated layer by layer, loss"));
}

TEST(JobLogTextTest, SubmittedTellsTheBudgetOfSampledBlocks) {
  Job job = AJob();
  job.spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
  job.spec.train.nodes.fan_outs = {15, 10};
  job.spec.train.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 5000, .max_edges = 9000};
  EXPECT_THAT(SubmittedLine(job), HasSubstr("batch size 1024, blocks of at most 5000 nodes and 9000 edges, seed"));
  job.spec.train.batching.max_nodes = 0;
  EXPECT_THAT(SubmittedLine(job), HasSubstr("batch size 1024, blocks of at most 9000 edges, seed"));
}

TEST(JobLogTextTest, StartedAndResumedDiffer) {
  Job job = AJob();
  EXPECT_EQ(StartedLine(job, "cpu", 2), "started on cpu, 2 threads");
  job.resumes = 2;
  EXPECT_EQ(StartedLine(job, "cpu", 1), "resumed on cpu, 1 thread (resume 2)");
}

TEST(JobLogTextTest, EpochsReadAsATable) {
  spec::TrainOptions options;
  options.epochs = 100;
  const std::string ninth = EpochLine({9, 0.5, 0.25, 0.125, 1e-3, 1, 0.5, 20000}, options);
  const std::string tenth = EpochLine({100, 12.5, 0.25, 0.125, 1e-3, 10, 0.5, 100}, options);
  EXPECT_EQ(ninth.size(), tenth.size());
  EXPECT_THAT(ninth, HasSubstr("epoch   9/100"));
  EXPECT_THAT(tenth, HasSubstr("epoch 100/100"));
  EXPECT_EQ(ninth.find("valid MAE"), tenth.find("valid MAE"));
  EXPECT_THAT(ninth, HasSubstr("20000 graphs/s"));
}

TEST(JobLogTextTest, TheMetricHasItsName) {
  const struct {
    spec::Loss loss;
    const char* name;
  } kCases[] = {{spec::Loss::kL1, "MAE"},
                {spec::Loss::kMse, "MAE"},
                {spec::Loss::kCrossEntropy, "accuracy"},
                {spec::Loss::kBce, "ROC-AUC"}};
  for (const auto& c : kCases) {
    Job job = AJob();
    job.spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
    job.spec.train.loss = c.loss;
    job.state = JobState::kSucceeded;
    job.result = train::RunResult{18, 0.25, 0.5, 0, 0.75, 0, 60, 1.5, 1};
    const std::string epoch = EpochLine({9, 0.5, 0.25, 0.125, 1e-3, 1, 0.5, 20000}, job.spec.train);
    EXPECT_THAT(epoch, HasSubstr(std::string("valid ") + c.name + "   0.12500"));
    EXPECT_THAT(epoch, HasSubstr("20000 nodes/s"));
    EXPECT_THAT(EndedLine(job), HasSubstr(std::string("last epoch test ") + c.name + " 0.75000"));
  }
}

TEST(JobLogTextTest, TheEndSaysHow) {
  Job job = AJob();
  job.state = JobState::kFailed;
  job.error = "out of memory";
  EXPECT_EQ(EndedLine(job), "failed: out of memory");
  job.state = JobState::kCancelled;
  job.progress.step = 12;
  EXPECT_EQ(EndedLine(job), "cancelled after step 12");
  job.state = JobState::kSucceeded;
  job.result = train::RunResult{18, 0.25, 0.5, 0, 0.75, 0, 60, 1.5, 1};
  EXPECT_THAT(EndedLine(job), HasSubstr("best epoch 18 with valid MAE 0.25000, test MAE 0.50000"));
}

}  // namespace
}  // namespace permafrost::jobs
