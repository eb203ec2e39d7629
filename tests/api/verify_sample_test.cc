// Tests VerifyDataset and SampleDataset, which read whole stores on threads of their own.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"
#include "telemetry/log.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class VerifySampleTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    jobs_.catalog().PutStore("git", std::shared_ptr<const data::Graph>(graph_));
    verify_.set_name("datasets/git");
    sample_.set_name("datasets/git");
  }
  struct Verified {
    std::vector<int64_t> done;
    int64_t total = 0;
    grpc::Status status;
  };
  Verified Verify() {
    grpc::ClientContext context;
    const auto reader = dataset_stub_->VerifyDataset(&context, verify_);
    Verified out;
    v1::VerifyDatasetResponse response;
    while (reader->Read(&response)) {
      out.done.push_back(response.bytes_done());
      out.total = response.bytes_total();
    }
    out.status = reader->Finish();
    return out;
  }
  grpc::Status Sample(v1::SampleDatasetResponse& response) {
    grpc::ClientContext context;
    return dataset_stub_->SampleDataset(&context, sample_, &response);
  }

  const std::shared_ptr<jobs::FakeGraph> graph_ = std::make_shared<jobs::FakeGraph>();
  v1::VerifyDatasetRequest verify_;
  v1::SampleDatasetRequest sample_;
};

TEST_F(VerifySampleTest, AWholeStoreEndsWithAllOfItsBytes) {
  graph_->SetVerification([](const jobs::FakeGraph::Progress& progress) {
    for (uint64_t done = 0; done <= 1000; done += 10) EXPECT_TRUE(progress(done, 1000));
    return absl::OkStatus();
  });
  const Verified verified = Verify();
  EXPECT_TRUE(verified.status.ok()) << verified.status.error_message();
  ASSERT_FALSE(verified.done.empty());
  EXPECT_TRUE(std::is_sorted(verified.done.begin(), verified.done.end()));
  EXPECT_EQ(verified.done.back(), 1000);
  EXPECT_EQ(verified.total, 1000);
  EXPECT_LT(verified.done.size(), 20u) << "not a message a block";
}

TEST_F(VerifySampleTest, ProgressIsToldWhileItGoesOn) {
  absl::Notification seen;
  graph_->SetVerification([&](const jobs::FakeGraph::Progress& progress) {
    progress(400, 1000);
    EXPECT_TRUE(seen.WaitForNotificationWithTimeout(kPatience)) << "a block that takes long must not hide the last one";
    return absl::OkStatus();
  });
  grpc::ClientContext context;
  const auto reader = dataset_stub_->VerifyDataset(&context, verify_);
  v1::VerifyDatasetResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.bytes_done(), 400);
  seen.Notify();
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.bytes_done(), 1000);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(VerifySampleTest, DamageIsToldWithItsPlace) {
  graph_->SetVerification([](const jobs::FakeGraph::Progress& progress) {
    progress(500, 1000);
    return absl::DataLossError("graph.pfg: in.neighbors: bytes 65536..131071 do not have their checksum");
  });
  telemetry::InitLog();
  testing::internal::CaptureStderr();
  const Verified verified = Verify();
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::ContainsRegex("error +DatasetService/VerifyDataset of ip[^\n]*: DATA_LOSS: graph.pfg: in.neighbors"));
  EXPECT_EQ(verified.status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(verified.status.error_message(), HasSubstr("in.neighbors: bytes 65536..131071"));
}

TEST_F(VerifySampleTest, ACancelledCallStopsReading) {
  absl::Notification began, stopped;
  graph_->SetVerification([&](const jobs::FakeGraph::Progress& progress) {
    began.Notify();
    while (progress(1, 1000)) std::this_thread::yield();
    stopped.Notify();
    return absl::CancelledError();
  });
  grpc::ClientContext context;
  const auto reader = dataset_stub_->VerifyDataset(&context, verify_);
  ASSERT_TRUE(began.WaitForNotificationWithTimeout(kPatience));
  context.TryCancel();
  EXPECT_TRUE(stopped.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(VerifySampleTest, AServerThatStopsEndsTheVerification) {
  absl::Notification began;
  graph_->SetVerification([&](const jobs::FakeGraph::Progress& progress) {
    began.Notify();
    while (progress(1, 1000)) std::this_thread::yield();
    return absl::CancelledError();
  });
  grpc::ClientContext context;
  const auto reader = dataset_stub_->VerifyDataset(&context, verify_);
  ASSERT_TRUE(began.WaitForNotificationWithTimeout(kPatience));
  server_->Shutdown(kPatience);
  v1::VerifyDatasetResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(VerifySampleTest, ThereAreFewAtATime) {
  absl::Notification release;
  std::atomic<int> running{0};
  graph_->SetVerification([&](const jobs::FakeGraph::Progress& progress) {
    ++running;
    progress(1, 1000);
    release.WaitForNotification();
    return absl::OkStatus();
  });
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::VerifyDatasetResponse>>> readers;
  v1::VerifyDatasetResponse response;
  for (int i = 0; i < limits_.dataset_reads; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(dataset_stub_->VerifyDataset(contexts.back().get(), verify_));
    EXPECT_TRUE(readers.back()->Read(&response));
  }
  EXPECT_EQ(running, limits_.dataset_reads) << "each on a thread of its own";
  const Verified refused = Verify();
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(refused.status)->reason(), "TOO_MANY_CALLS");
  sample_.mutable_walk();
  v1::SampleDatasetResponse answer;
  EXPECT_EQ(Sample(answer).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::PlanDatasetRequest plan;
  plan.set_name("datasets/git");
  plan.set_memory_bytes(1);
  plan.mutable_neighbors()->add_fan_outs(1);
  grpc::ClientContext plan_context;
  v1::PlanDatasetResponse planned;
  EXPECT_EQ(dataset_stub_->PlanDataset(&plan_context, plan, &planned).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  // Calls that take no slot are still served.
  grpc::ClientContext context;
  v1::ListDatasetsResponse list;
  EXPECT_TRUE(dataset_stub_->ListDatasets(&context, {}, &list).ok());
  release.Notify();
  for (const auto& reader : readers) {
    while (reader->Read(&response)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
  }
}

TEST_F(VerifySampleTest, AnUnknownDatasetIsNotFoundAndABadNameAViolation) {
  verify_.set_name("datasets/none");
  EXPECT_EQ(Verify().status.error_code(), grpc::StatusCode::NOT_FOUND);
  verify_.set_name("git");
  EXPECT_THAT(Fields(Verify().status), ElementsAre("name"));
  v1::SampleDatasetResponse answer;
  sample_.mutable_walk();
  sample_.set_name("datasets/none");
  EXPECT_EQ(Sample(answer).error_code(), grpc::StatusCode::NOT_FOUND);
  sample_.set_name("git");
  sample_.clear_kind();
  EXPECT_THAT(Fields(Sample(answer)), ElementsAre("name", "neighbors"));
}

TEST_F(VerifySampleTest, NeighborsAreDrawn) {
  sample_.add_nodes(0);
  sample_.mutable_neighbors()->add_fan_outs(-1);
  v1::SampleDatasetResponse answer;
  const grpc::Status status = Sample(answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(answer.nodes(), ElementsAre(0));
  EXPECT_THAT(answer.nodes_of_hop(), ElementsAre(1, 3));
  ASSERT_EQ(answer.edges_size(), 3);
  for (const auto& edge : answer.edges()) {
    EXPECT_EQ(edge.target(), 0u);
    EXPECT_EQ(edge.hop(), 1);
    EXPECT_EQ(edge.weight(), static_cast<float>(edge.source()));
  }
}

TEST_F(VerifySampleTest, WalksAreDrawn) {
  sample_.add_nodes(2);
  sample_.mutable_walk()->set_length(3);
  v1::SampleDatasetResponse answer;
  const grpc::Status status = Sample(answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.walk_length(), 3);
  EXPECT_THAT(answer.walks(), ElementsAre(2, 0, 0));
}

TEST_F(VerifySampleTest, WhatCannotBeDrawnNamesItsField) {
  sample_.add_nodes(4);
  sample_.mutable_neighbors()->add_fan_outs(0);
  v1::SampleDatasetResponse answer;
  const grpc::Status status = Sample(answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  for (const std::string& field : Fields(status)) {
    EXPECT_TRUE(field == "nodes[0]" || field == "neighbors.fan_outs") << field;
  }
  EXPECT_FALSE(Fields(status).empty());
}

TEST_F(VerifySampleTest, ManySmallGraphsAreNotSampled) {
  sample_.set_name("datasets/zinc");
  sample_.mutable_walk();
  v1::SampleDatasetResponse answer;
  const grpc::Status status = Sample(answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("zinc holds many small graphs"));
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status)->reason(), "DATASET_IS_GRAPH_SET");
}

}  // namespace
}  // namespace permafrost::api
