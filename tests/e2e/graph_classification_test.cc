// Tests a TUDataset as a user works with it: imported from its ZIP, a GINE trained to classify it, a sweep over its
// folds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

using testing::HasSubstr;

std::filesystem::path SharedTuFolder() {
  return std::filesystem::path(PERMAFROST_SOURCE_DIR) / ".." / "shared" / "data" / "tu";
}

TEST(GraphClassification, MutagIsImportedLearnedAndSwept) {
  if (!std::filesystem::exists(SharedTuFolder() / "MUTAG.zip")) GTEST_SKIP() << "no ../shared/data/tu/MUTAG.zip";
  const TempDir dir;
  Daemon daemon(dir.path() / "state", SharedTuFolder());
  ASSERT_TRUE(daemon.ready());
  const v1::Dataset dataset = daemon.Import("mutag", SharedTuFolder() / "MUTAG.zip");
  ASSERT_EQ(dataset.state(), v1::Dataset::STATE_READY) << dataset.error();
  EXPECT_EQ(dataset.graph_set().all().num_graphs(), 188);
  EXPECT_THAT(daemon.Client({"dataset", "show", "mutag"}).out,
              HasSubstr("1 a graph, 0 labels missing, 2 classes: 0 is -1, 1 is 1 in the source"));

  const std::vector<std::string> what = {"--dataset", "mutag",
                                         "--loss",    "cross-entropy",
                                         "--hidden",  "32",
                                         "--layers",  "3",
                                         "--metrics", "accuracy,f1-macro,roc-auc",
                                         "--lr",      "0.01",
                                         "--epochs",  "25",
                                         "--folds",   "10",
                                         "--pooling", "sum"};
  std::vector<std::string> submit = {"job", "submit", "--id", "first"};
  submit.insert(submit.end(), what.begin(), what.end());
  const Output submitted = daemon.Client(submit);
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  const v1::Job job = daemon.AwaitEnd("first");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  const v1::Job whole = daemon.Get("first");
  ASSERT_EQ(whole.result().best_test_metrics_size(), 3);
  EXPECT_EQ(whole.result().best_test_metrics(1).metric(), v1::METRIC_F1_MACRO);
  // Two thirds of the graphs belong to one class.
  EXPECT_GT(whole.result().best_valid_metric(), 0.7);
  EXPECT_LT(whole.epochs(24).train_loss(), whole.epochs(0).train_loss());
  EXPECT_THAT(daemon.Client({"job", "show", "first"}).out, HasSubstr("test macro F1, best epoch"));

  std::vector<std::string> sweep = {"--output", "json", "job", "sweep", "--vary", "fold=0..2", "--id", "folds"};
  sweep.insert(sweep.end(), what.begin(), what.end());
  const Output swept = daemon.Client(sweep);
  ASSERT_EQ(swept.code, 0) << swept.err;
  const auto result = nlohmann::json::parse(swept.out);
  ASSERT_EQ(result["jobs"].size(), 3U);
  // The same fold gives the same result as the first job.
  EXPECT_EQ(result["jobs"][0]["test"]["accuracy"], whole.result().best_test_metric());
  double mean = 0;
  for (const auto& one : result["jobs"]) mean += one["test"]["accuracy"].get<double>() / 3;
  EXPECT_NEAR(result["groups"][0]["test"]["accuracy"]["mean"].get<double>(), mean, 1e-12);
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
