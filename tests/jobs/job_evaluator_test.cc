// Tests evaluations of a job's weights: the defaults of a request, the choice of weights, and the device.
#include "base/file.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::EvaluatedRows;

class JobEvaluatorTest : public testing::Test {
 protected:
  void SetUp() override {
    server_->Start();
    server_.Create("made");
    server_.AwaitEnd("made");
    Put("artifacts/best.safetensors", "the best");
    Put("artifacts/last.safetensors", "the last");
  }
  void Put(const std::string& name, const std::string& content) {
    const fs::path path = server_.JobDirectory("made") / name;
    fs::create_directories(path.parent_path());
    ASSERT_EQ(WriteFileAtomic(path, content), absl::OkStatus());
  }
  absl::StatusOr<JobEvaluation> Evaluate(EvaluationRequest request) {
    if (request.job.empty()) request.job = JobId("made");
    return server_->Evaluate(request, [](int64_t /*done*/, int64_t /*total*/) { return true; });
  }
  // Returns the weights that the last request evaluated.
  std::string weights() { return server_.runner().evaluated().weights; }

  const TempDir dir_;
  Server server_{dir_.path()};
};

TEST_F(JobEvaluatorTest, WhatARequestLeavesOpenIsTheJobs) {
  const auto evaluation = Evaluate({.predictions = true});
  ASSERT_EQ(evaluation.status(), absl::OkStatus());
  EXPECT_EQ(evaluation->dataset, DatasetId("zinc"));
  EXPECT_EQ(evaluation->rows, EvaluatedRows::kTest);
  EXPECT_THAT(evaluation->metrics, ElementsAre(spec::Metric::kMae));
  EXPECT_EQ(evaluation->result.rows, 20);
  const train::EvaluateRequest pass = server_.runner().evaluated();
  EXPECT_EQ(pass.weights, "the best");
  EXPECT_EQ(pass.source, "jobs/made");
  EXPECT_FALSE(pass.trained_on.has_value() || pass.other_dataset) << "it is the dataset itself";
  EXPECT_FALSE(pass.allow_unknown_categories);
  EXPECT_TRUE(pass.predictions);
}

TEST_F(JobEvaluatorTest, OfAnotherDatasetAllRowsAreMeant) {
  server_.catalog().Put("other");
  const auto evaluation = Evaluate({.dataset = DatasetId("other"), .metrics = {spec::Metric::kR2, spec::Metric::kMae}});
  ASSERT_EQ(evaluation.status(), absl::OkStatus());
  EXPECT_EQ(evaluation->rows, EvaluatedRows::kAll);
  EXPECT_THAT(evaluation->metrics, ElementsAre(spec::Metric::kR2, spec::Metric::kMae));
  EXPECT_TRUE(server_.runner().evaluated().trained_on.has_value());
  EXPECT_TRUE(server_.runner().evaluated().other_dataset);
  ASSERT_TRUE(Evaluate({.dataset = DatasetId("other"), .allow_unknown_categories = true}).ok());
  EXPECT_TRUE(server_.runner().evaluated().allow_unknown_categories);
  EXPECT_EQ(Evaluate({.dataset = DatasetId("other"), .rows = EvaluatedRows::kValid})->rows, EvaluatedRows::kValid);
}

// The dataset was deleted and imported anew under its name, perhaps with other data.
TEST_F(JobEvaluatorTest, OtherDataUnderTheNameOfTheJobsAreAnotherDataset) {
  server_.catalog().Put("zinc");
  const absl::Status refused = Evaluate({}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(GetReason(refused).reason, "DATASET_CHANGED");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("dataset zinc has other data than job made was trained on"));
  const auto named = Evaluate({.dataset = DatasetId("zinc")});
  ASSERT_EQ(named.status(), absl::OkStatus());
  EXPECT_EQ(named->rows, EvaluatedRows::kAll);
  server_.catalog().Put("other");
  ASSERT_EQ(Evaluate({.dataset = DatasetId("other")}).status(), absl::OkStatus());
  EXPECT_FALSE(server_.runner().evaluated().trained_on.has_value()) << "what it was trained on is gone";
  EXPECT_TRUE(server_.runner().evaluated().other_dataset) << "and another one all the same";
  server_.catalog().Put("zinc", data::DatasetState::kImporting);
  EXPECT_NE(GetReason(Evaluate({}).status()).reason, "DATASET_CHANGED") << "nobody knows yet";
}

TEST_F(JobEvaluatorTest, WeightsAreOfTheBestEpochTheLastOrACheckpoint) {
  ASSERT_EQ(Evaluate({.weights = spec::JobWeights::kLast}).status(), absl::OkStatus());
  EXPECT_EQ(weights(), "the last");
  const absl::Status none = Evaluate({.checkpoint_step = 7}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("checkpoint_step: 7 is the step of no complete checkpoint"));

  fs::remove_all(server_.JobDirectory("made") / "artifacts");
  const absl::Status gone = Evaluate({}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(gone));
  EXPECT_EQ(GetReason(gone).reason, "ARTIFACT_NOT_READY");
}

TEST_F(JobEvaluatorTest, WhatIsNotThereOrDoesNotGoIsRefused) {
  EXPECT_TRUE(absl::IsNotFound(Evaluate({.job = JobId("none")}).status()));
  EXPECT_TRUE(absl::IsNotFound(Evaluate({.dataset = DatasetId("none")}).status()));
  const absl::Status metric = Evaluate({.metrics = {spec::Metric::kAccuracy}}).status();
  EXPECT_THAT(std::string(metric.message()), HasSubstr("metrics[0]: accuracy does not measure loss l1"));
}

TEST_F(JobEvaluatorTest, RunsBesideAJobButNotOnItsDevice) {
  server_.runner().Hold();
  server_.Create("running");
  server_.runner().AwaitHeld();
  EXPECT_EQ(Evaluate({}).status(), absl::OkStatus());
  server_.runner().SetDevice(DeviceKind::kMps);
  const absl::Status busy = Evaluate({}).status();
  EXPECT_TRUE(absl::IsUnavailable(busy));
  EXPECT_THAT(std::string(busy.message()), HasSubstr("runs on mps, and the device is not idle"));
  server_.runner().Release();
  server_.AwaitEnd("running");
  while (!Evaluate({}).ok()) {
  }
}

TEST_F(JobEvaluatorTest, AStopAndADrainEndIt) {
  const auto stopped = server_->Evaluate({.job = JobId("made")}, [](int64_t, int64_t) { return false; });
  EXPECT_TRUE(absl::IsCancelled(stopped.status()));
  server_.runner().SetOnPlan([this] { server_->Drain(); });
  EXPECT_TRUE(absl::IsUnavailable(Evaluate({}).status()));
  EXPECT_TRUE(absl::IsUnavailable(Evaluate({}).status())) << "before it begins";
}

}  // namespace
}  // namespace permafrost::jobs
