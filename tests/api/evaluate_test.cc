// Tests EvaluateJob: the wire, the progress, and predictions in pieces.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/streams/stream_work.h"
#include "base/hash.h"
#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EvaluateTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    jobs_.Record(MakeJob("made", jobs::JobState::kSucceeded));
    jobs_.WriteFile("made", "artifacts/best.safetensors", "weights");
  }
  struct Answer {
    std::vector<v1::EvaluateJobResponse> responses;
    grpc::Status status;
  };
  Answer Evaluate(const v1::EvaluateJobRequest& request) {
    grpc::ClientContext context;
    const auto reader = job_stub_->EvaluateJob(&context, request);
    Answer answer;
    v1::EvaluateJobResponse response;
    while (reader->Read(&response)) answer.responses.push_back(response);
    answer.status = reader->Finish();
    return answer;
  }
  static v1::EvaluateJobRequest Request() {
    v1::EvaluateJobRequest request;
    request.set_name("jobs/made");
    return request;
  }
};

TEST_F(EvaluateTest, TheResultComesThenThePredictions) {
  std::string csv = "graph,prediction_0\n";
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&csv, i, ",0.5\n");
  jobs_.runner().SetEvaluation(
      {.rows = 20'000, .loss = std::numeric_limits<double>::quiet_NaN(), .metrics = {0.25, 0.75}, .predictions = csv});
  v1::EvaluateJobRequest request = Request();
  request.set_rows(v1::EvaluateJobRequest::ROWS_ALL);
  request.add_metrics(v1::METRIC_MAE);
  request.add_metrics(v1::METRIC_R2);
  request.set_predictions(true);
  const Answer answer = Evaluate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  std::string got;
  int results = 0;
  for (const auto& response : answer.responses) {
    got += response.predictions();
    if (!response.has_result()) continue;
    ++results;
    EXPECT_EQ(got, "") << "the result comes first";
    EXPECT_EQ(response.rows_done(), 20'000);
    EXPECT_EQ(response.result().dataset(), "datasets/zinc");
    EXPECT_EQ(response.result().rows(), v1::EvaluateJobRequest::ROWS_ALL);
    EXPECT_EQ(response.result().num_rows(), 20'000);
    EXPECT_EQ(response.result().metrics(1).metric(), v1::METRIC_R2);
    EXPECT_EQ(response.result().metrics(1).value(), 0.75);
  }
  EXPECT_EQ(results, 1);
  EXPECT_EQ(got, csv);
  EXPECT_EQ(answer.responses.back().total_bytes(), static_cast<int64_t>(csv.size()));
  EXPECT_EQ(answer.responses.back().xxh3(), HashHex(Hash64(csv.data(), csv.size())));
  EXPECT_GT(answer.responses.size(), 3u) << "in pieces";
}

TEST_F(EvaluateTest, WithoutPredictionsTheResultIsTheEnd) {
  jobs_.runner().SetEvaluation({.rows = 4, .loss = 1, .metrics = {2}, .predictions = ""});
  WriteCheckpoint(jobs_, "made", 0, "of step 0", HashHex(Hash64(std::string_view("of step 0"))));
  v1::EvaluateJobRequest request = Request();
  jobs_.catalog().Put("other");
  request.set_dataset("datasets/other");
  request.set_rows(v1::EvaluateJobRequest::ROWS_TRAIN);
  request.set_checkpoint_step(0);
  request.add_metrics(v1::METRIC_RMSE);
  const Answer answer = Evaluate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.responses.back().has_result());
  EXPECT_EQ(answer.responses.back().result().dataset(), "datasets/other");
  EXPECT_EQ(answer.responses.back().result().rows(), v1::EvaluateJobRequest::ROWS_TRAIN);
  const train::EvaluateRequest asked = jobs_.runner().evaluated();
  EXPECT_EQ(asked.source, "jobs/made");
  EXPECT_TRUE(asked.other_dataset);
  EXPECT_EQ(asked.rows, train::EvaluatedRows::kTrain);
  EXPECT_EQ(asked.weights, "of step 0") << "a step that is given, though it is 0";
  EXPECT_THAT(asked.options.metrics, ElementsAre(spec::Metric::kRmse));
  EXPECT_FALSE(asked.predictions);
}

TEST_F(EvaluateTest, WithoutLabelsThereAreNoMetrics) {
  jobs_.runner().SetEvaluation({.rows = 4,
                                .loss = std::numeric_limits<double>::quiet_NaN(),
                                .metrics = {},
                                .predictions = "graph,prediction_0\n"});
  v1::EvaluateJobRequest request = Request();
  request.set_predictions(true);
  const Answer answer = Evaluate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  int results = 0;
  for (const auto& response : answer.responses) {
    if (!response.has_result()) continue;
    ++results;
    EXPECT_TRUE(std::isnan(response.result().loss()));
    EXPECT_TRUE(response.result().metrics().empty());
  }
  EXPECT_EQ(results, 1);
}

TEST_F(EvaluateTest, WhatIsWrongIsToldFieldByField) {
  v1::EvaluateJobRequest request;
  request.set_name("made");
  request.set_dataset("sets/zinc");
  request.set_rows(static_cast<v1::EvaluateJobRequest::Rows>(9));
  request.set_weights(v1::InitFrom::WEIGHTS_LAST);
  request.set_checkpoint_step(3);
  request.add_metrics(static_cast<v1::Metric>(99));
  const Answer answer = Evaluate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(Fields(answer.status), ElementsAre("name", "dataset", "rows", "weights", "metrics[0]"));
}

TEST_F(EvaluateTest, AnErrorOfThePassIsTheCalls) {
  jobs_.runner().SetDevice(DeviceKind::kMps);
  const Answer answer = Evaluate(Request());
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("the device is not idle"));
}

}  // namespace
}  // namespace permafrost::api
