#include "telemetry/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "absl/time/clock.h"
#include "metric_values.h"

namespace permafrost::telemetry {
namespace {

class JobMetricsTest : public testing::Test {
 protected:
  std::optional<double> Value(const std::string& name, const MetricLabels& labels = {}) const {
    return MetricValue(registry_, name, labels);
  }
  prometheus::Registry registry_;
  JobMetrics metrics_{registry_, {"queued", "running", "succeeded", "failed", "cancelled"}};
};

TEST_F(JobMetricsTest, EverySeriesExistsFromTheStart) {
  for (const char* state : {"queued", "running", "succeeded", "failed", "cancelled"}) {
    EXPECT_EQ(Value("permafrost_jobs", {{"state", state}}), 0) << state;
  }
  for (const char* state : {"succeeded", "failed", "cancelled"}) {
    EXPECT_EQ(Value("permafrost_jobs_finished_total", {{"state", state}}), 0) << state;
  }
  EXPECT_EQ(Value("permafrost_jobs_finished_total", {{"state", "queued"}}), std::nullopt)
      << "a queued job has not ended";
  for (const char* name :
       {"permafrost_job_queue_wait_seconds", "permafrost_job_resumes_total", "permafrost_train_steps_total",
        "permafrost_train_graphs_total", "permafrost_train_nodes_total", "permafrost_train_edges_total",
        "permafrost_train_padding_nodes_total", "permafrost_train_padding_edges_total",
        "permafrost_train_epoch_seconds", "permafrost_train_whole_step_seconds", "permafrost_checkpoint_seconds",
        "permafrost_job_log_failures_total", "permafrost_store_failures_total"}) {
    EXPECT_EQ(Value(name), 0) << name;
  }
  for (const char* reason : {"OUT_OF_MEMORY", "BAD_DATA", "SERVER_DIED_AGAIN", "DATASET_CHANGED", "OTHER"}) {
    EXPECT_EQ(Value("permafrost_job_failures_total", {{"reason", reason}}), 0) << reason;
  }
  for (const char* phase : {"batch", "forward", "backward", "optimizer"}) {
    EXPECT_EQ(Value("permafrost_train_step_seconds", {{"phase", phase}}), 0) << phase;
  }
}

TEST_F(JobMetricsTest, WhatDoesNotApplyIsAbsent) {
  metrics_.BeforeScrape();
  const std::vector<const char*> of_a_run = {"permafrost_train_epoch", "permafrost_train_loss",
                                             "permafrost_train_graphs_per_second", "permafrost_checkpoint_age_seconds",
                                             "permafrost_job_lookahead_depth"};
  const auto expect = [&](bool there) {
    for (const char* name : of_a_run) EXPECT_EQ(Value(name).has_value(), there) << name;
  };
  expect(false);
  EXPECT_EQ(Value("permafrost_checkpoint_timestamp_seconds"), std::nullopt);
  EXPECT_EQ(Value("permafrost_train_last_step_timestamp_seconds"), std::nullopt);
  metrics_.SetRunning(1, 0.5, 100);
  metrics_.SetLookAhead(LookAheadState{.depth = 4});
  metrics_.BeforeScrape();
  expect(true);
  metrics_.SetIdle();
  metrics_.BeforeScrape();
  expect(false);
}

TEST_F(JobMetricsTest, FailuresAreCountedUnderReasonsThatAreKnown) {
  metrics_.CountFailure("OUT_OF_MEMORY");
  const size_t before = MetricsText(registry_).size();
  metrics_.CountFailure("MADE_UP");
  metrics_.CountFailure("");
  EXPECT_EQ(MetricsText(registry_).size(), before) << "no series more";
  EXPECT_EQ(Value("permafrost_job_failures_total", {{"reason", "OUT_OF_MEMORY"}}), 1);
  EXPECT_EQ(Value("permafrost_job_failures_total", {{"reason", "OTHER"}}), 2);
}

TEST_F(JobMetricsTest, CountsStepsAndPaddingApart) {
  metrics_.AddSteps({.steps = 1, .graphs = 32, .nodes = 700, .edges = 1500, .padding_nodes = 20, .padding_edges = 36});
  metrics_.AddSteps({.steps = 2, .graphs = 64, .nodes = 1400, .edges = 3000, .padding_nodes = 2, .padding_edges = 3});
  EXPECT_EQ(Value("permafrost_train_steps_total"), 3);
  EXPECT_EQ(Value("permafrost_train_graphs_total"), 96);
  EXPECT_EQ(Value("permafrost_train_nodes_total"), 2100);
  EXPECT_EQ(Value("permafrost_train_edges_total"), 4500);
  EXPECT_EQ(Value("permafrost_train_padding_nodes_total"), 22);
  EXPECT_EQ(Value("permafrost_train_padding_edges_total"), 39);
}

TEST_F(JobMetricsTest, CountsEachRankOfAJobByItself) {
  metrics_.AddSteps({.steps = 4, .ranks = {{4, 0.4, 0.1}, {3, 0.3, 0}}});
  metrics_.AddSteps({.steps = 1, .ranks = {{1, 0.1, 0.1}, {}}});
  EXPECT_EQ(Value("permafrost_train_rank_steps_total", {{"rank", "0"}}), 5);
  EXPECT_EQ(Value("permafrost_train_rank_seconds_total", {{"rank", "0"}}), 0.5);
  EXPECT_EQ(Value("permafrost_train_rank_exchange_seconds_total", {{"rank", "0"}}), 0.2);
  EXPECT_EQ(Value("permafrost_train_rank_steps_total", {{"rank", "1"}}), 3);
}

TEST_F(JobMetricsTest, AStepIsObservedInEachPhase) {
  metrics_.ObserveStep({.batch = 1e-4, .forward = 2e-3, .backward = 3e-3, .optimizer = 5e-4});
  for (const char* phase : {"batch", "forward", "backward", "optimizer"}) {
    EXPECT_EQ(Value("permafrost_train_step_seconds", {{"phase", phase}}), 1) << phase;
  }
  EXPECT_EQ(Value("permafrost_train_whole_step_seconds"), 1);
  EXPECT_THAT(MetricsText(registry_), testing::HasSubstr("permafrost_train_whole_step_seconds_sum 0.0056"));
  EXPECT_GT(Value("permafrost_train_last_step_timestamp_seconds").value(), 1e9);
}

TEST_F(JobMetricsTest, StatesAndEndsAreLabels) {
  metrics_.SetJobs("queued", 4);
  metrics_.SetJobs("queued", 3);
  metrics_.CountFinished("failed");
  metrics_.CountFinished("failed");
  EXPECT_EQ(Value("permafrost_jobs", {{"state", "queued"}}), 3);
  EXPECT_EQ(Value("permafrost_jobs_finished_total", {{"state", "failed"}}), 2);
}

TEST_F(JobMetricsTest, AStateThatWasNotNamedAddsNoSeries) {
  metrics_.SetJobs("paused", 1);
  metrics_.CountFinished("paused");
  EXPECT_EQ(Value("permafrost_jobs", {{"state", "paused"}}), std::nullopt);
  EXPECT_EQ(Value("permafrost_jobs_finished_total", {{"state", "paused"}}), std::nullopt);
}

TEST_F(JobMetricsTest, CheckpointAgeIsWhatACrashOfTheRunningJobWouldLose) {
  metrics_.SetRunning(1, 0.5, 100);
  absl::SleepFor(absl::Milliseconds(20));
  metrics_.BeforeScrape();
  const double of_the_run = Value("permafrost_checkpoint_age_seconds").value();
  EXPECT_GE(of_the_run, 0.02) << "it has no checkpoint yet";
  const double before = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  metrics_.ObserveCheckpoint(absl::Milliseconds(3));
  EXPECT_GE(Value("permafrost_checkpoint_timestamp_seconds").value(), before);
  EXPECT_EQ(Value("permafrost_checkpoint_seconds"), 1);
  metrics_.BeforeScrape();
  EXPECT_LT(Value("permafrost_checkpoint_age_seconds").value(), 60);
  metrics_.SetIdle();
  metrics_.BeforeScrape();
  EXPECT_EQ(Value("permafrost_checkpoint_age_seconds"), std::nullopt);
  EXPECT_GE(Value("permafrost_checkpoint_timestamp_seconds").value(), before) << "it is still there";
  // For the next job, the age counts from the start of its run, not from the last job's checkpoint.
  absl::SleepFor(absl::Milliseconds(20));
  const absl::Time next = absl::Now();
  metrics_.SetRunning(1, 0.5, 100);
  metrics_.BeforeScrape();
  EXPECT_LE(Value("permafrost_checkpoint_age_seconds").value(), absl::ToDoubleSeconds(absl::Now() - next) + 0.005);
}

TEST_F(JobMetricsTest, AClockSetBackIsNoNegativeWait) {
  metrics_.ObserveQueueWait(-absl::Hours(1));
  EXPECT_EQ(Value("permafrost_job_queue_wait_seconds"), 1);
  EXPECT_NE(MetricsText(registry_).find("permafrost_job_queue_wait_seconds_sum 0\n"), std::string::npos);
}

TEST_F(JobMetricsTest, ShowsTheSamplerThatRunsAhead) {
  metrics_.SetLookAhead(LookAheadState{8, 3, 0.75});
  EXPECT_EQ(Value("permafrost_job_lookahead_depth"), 8);
  EXPECT_EQ(Value("permafrost_job_lookahead_ready_batches"), 3);
  EXPECT_EQ(Value("permafrost_job_lookahead_resident_ratio"), 0.75);
  metrics_.AddLookAhead({1, 20, 7, 300, 4000, 50'000});
  metrics_.AddLookAhead({1, 20, 7, 300, 4000, 50'000});
  EXPECT_EQ(Value("permafrost_job_lookahead_stalls_total"), 2);
  EXPECT_EQ(Value("permafrost_job_lookahead_sampled_edges_total"), 40);
  EXPECT_EQ(Value("permafrost_job_lookahead_cut_batches_total"), 14);
  EXPECT_EQ(Value("permafrost_job_lookahead_wanted_pages_total"), 600);
  EXPECT_EQ(Value("permafrost_job_lookahead_advised_bytes_total"), 8000);
  EXPECT_EQ(Value("permafrost_job_lookahead_major_faults_total"), 100'000);
  metrics_.SetLookAhead(std::nullopt);
  EXPECT_EQ(Value("permafrost_job_lookahead_depth"), std::nullopt);
  EXPECT_EQ(Value("permafrost_job_lookahead_stalls_total"), 2) << "counters stay";
}

TEST_F(JobMetricsTest, ShowsTheFeatureCache) {
  FeatureCounts counts{.hits = 1,
                       .misses = 2,
                       .evictions = 3,
                       .read_bytes = 4,
                       .read_errors = 5,
                       .over_budget = 6,
                       .resizes = 7,
                       .stall_seconds = 0.5,
                       .read_seconds = 0.25};
  counts.reads[1] = 2;
  counts.reads.back() = 1;
  metrics_.features().Add(counts);
  metrics_.features().Add({.hits = 1});
  EXPECT_EQ(Value("permafrost_feature_cache_hits_total"), 2);
  EXPECT_EQ(Value("permafrost_feature_cache_misses_total"), 2);
  EXPECT_EQ(Value("permafrost_feature_cache_evictions_total"), 3);
  EXPECT_EQ(Value("permafrost_feature_cache_read_bytes_total"), 4);
  EXPECT_EQ(Value("permafrost_feature_cache_read_errors_total"), 5);
  EXPECT_EQ(Value("permafrost_feature_cache_over_budget_total"), 6);
  EXPECT_EQ(Value("permafrost_feature_cache_resizes_total"), 7);
  EXPECT_EQ(Value("permafrost_feature_cache_stall_seconds_total"), 0.5);
  const std::string text = MetricsText(registry_);
  for (const char* line :
       {"permafrost_feature_cache_read_seconds_count 3\n", "permafrost_feature_cache_read_seconds_sum 0.25\n",
        "permafrost_feature_cache_read_seconds_bucket{le=\"0.0001\"} 0\n",
        "permafrost_feature_cache_read_seconds_bucket{le=\"0.00025\"} 2\n",
        "permafrost_feature_cache_read_seconds_bucket{le=\"1\"} 2\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  const char* const states[] = {"permafrost_feature_cache_budget_bytes", "permafrost_feature_cache_bytes",
                                "permafrost_feature_cache_rows", "permafrost_feature_cache_read_depth"};
  for (const char* name : states) EXPECT_EQ(Value(name), std::nullopt) << name;
  metrics_.features().Set(FeatureState{.budget_bytes = 100, .used_bytes = 90, .rows = 8, .depth = 7});
  EXPECT_EQ(Value("permafrost_feature_cache_budget_bytes"), 100);
  EXPECT_EQ(Value("permafrost_feature_cache_bytes"), 90);
  EXPECT_EQ(Value("permafrost_feature_cache_rows"), 8);
  EXPECT_EQ(Value("permafrost_feature_cache_read_depth"), 7);
  metrics_.features().Set(std::nullopt);
  for (const char* name : states) EXPECT_EQ(Value(name), std::nullopt) << name;
}

TEST_F(JobMetricsTest, ShowsTheRunningJob) {
  metrics_.SetRunning(3, 0.25, 22000);
  EXPECT_EQ(Value("permafrost_train_epoch"), 3);
  EXPECT_EQ(Value("permafrost_train_loss"), 0.25);
  EXPECT_EQ(Value("permafrost_train_graphs_per_second"), 22000);
}

}  // namespace
}  // namespace permafrost::telemetry
