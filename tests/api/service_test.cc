// Tests unary calls over a real channel: conversion, errors, and their details on the wire.
#include <gmock/gmock.h>

#include <thread>

#include "absl/time/clock.h"
#include "api/guard/call_counts.h"
#include "api/wire/resource_name.h"
#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(ServerTest, CreateJobConvertsBothWays) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.set_job_id("mine");
  request.mutable_spec()->set_dataset("datasets/zinc");
  request.mutable_spec()->set_epochs(3);
  v1::Job job;
  const grpc::Status status = job_stub_->CreateJob(&context, request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(jobs_.Get("mine").spec.train.epochs, 3);
  EXPECT_EQ(job.name(), "jobs/mine");
  EXPECT_EQ(job.state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(job.spec().batch_size(), 32) << "defaults are told";
}

TEST_F(ServerTest, ViolationsReachTheClient) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.set_job_id("Bad");
  request.mutable_spec()->set_epochs(-1);
  v1::Job job;
  const grpc::Status status = job_stub_->CreateJob(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = Detail<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad.has_value());
  ASSERT_EQ(bad->field_violations_size(), 3);
  // A field that cannot be parsed is listed first.
  EXPECT_EQ(bad->field_violations(0).field(), "spec.dataset");
  EXPECT_EQ(bad->field_violations(1).field(), "job_id");
  EXPECT_EQ(bad->field_violations(2).field(), "spec.epochs");
}

TEST_F(ServerTest, AHugeBadValueStillGivesTheError) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name(std::string(200'000, '/'));
  v1::Job job;
  const grpc::Status status = job_stub_->GetJob(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "name");
}

TEST_F(ServerTest, ReasonsReachTheClient) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name("jobs/none");
  v1::Job job;
  const grpc::Status status = job_stub_->GetJob(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("none"));
  const auto info = Detail<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(info->domain(), "permafrost.dev");
  EXPECT_EQ(info->metadata().at("job"), "none");
}

TEST_F(ServerTest, UnavailableTellsWhenToRetry) {
  jobs_->Drain();
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.mutable_spec()->set_dataset("datasets/zinc");
  v1::Job job;
  const grpc::Status status = job_stub_->CreateJob(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Detail<google::rpc::RetryInfo>(status).has_value());
}

TEST_F(ServerTest, ListJobsHandsOnStatesPageSizeAndToken) {
  for (const char* id : {"a", "b", "c"}) jobs_.Create(id);
  ASSERT_TRUE(jobs_->Pause(JobId("b")).ok());
  v1::ListJobsRequest request;
  request.set_page_size(1);
  request.add_states(v1::Job::STATE_QUEUED);
  std::vector<std::string> names;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(job_stub_->ListJobs(&context, request, &response).ok());
    ASSERT_EQ(response.jobs_size(), 1);
    names.push_back(response.jobs(0).name());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names, ElementsAre("jobs/c", "jobs/a"));
  request.set_page_token("t");
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  const grpc::Status status = job_stub_->ListJobs(&context, request, &response);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "page_token");
}

TEST_F(ServerTest, AJobPageHasAThousandAtTheMost) {
  Violations violations;
  EXPECT_EQ(ReadPageSize(5000, violations), 1000);
  EXPECT_TRUE(violations.empty());
}

TEST_F(ServerTest, ListJobsRefusesABadPageSizeAndState) {
  grpc::ClientContext context;
  v1::ListJobsRequest request;
  request.set_page_size(-1);
  request.add_states(v1::Job::STATE_UNSPECIFIED);
  v1::ListJobsResponse response;
  const grpc::Status status = job_stub_->ListJobs(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations_size(), 2);
}

TEST_F(ServerTest, CancelAndDeleteParseTheName) {
  jobs_.Record(MakeJob("a", jobs::JobState::kCancelled));
  {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    ASSERT_TRUE(job_stub_->CancelJob(&context, request, &job).ok());
    EXPECT_EQ(job.state(), v1::Job::STATE_CANCELLED);
  }
  v1::DeleteJobRequest request;
  google::protobuf::Empty empty;
  for (const auto& [name, code] :
       {std::pair("a", grpc::StatusCode::INVALID_ARGUMENT), std::pair("jobs/a", grpc::StatusCode::OK),
        std::pair("jobs/a", grpc::StatusCode::NOT_FOUND)}) {
    grpc::ClientContext context;
    request.set_name(name);
    EXPECT_EQ(job_stub_->DeleteJob(&context, request, &empty).error_code(), code) << name;
  }
}

TEST_F(ServerTest, ImportDatasetConvertsBothWays) {
  grpc::ClientContext context;
  v1::ImportDatasetRequest request;
  request.set_dataset_id("zinc");
  request.mutable_options()->set_source_path("/data/zinc");
  v1::Dataset dataset;
  ASSERT_TRUE(dataset_stub_->ImportDataset(&context, request, &dataset).ok());
  EXPECT_EQ(dataset.name(), "datasets/zinc");
  EXPECT_EQ(dataset.state(), v1::Dataset::STATE_IMPORTING);
  EXPECT_EQ(dataset.import_options().train_fraction(), 0.8);
}

TEST_F(ServerTest, ListDatasetsPages) {
  jobs_.catalog().Remove("zinc");
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    jobs_.catalog().Put(id);
  }
  std::vector<std::string> names;
  std::vector<int> sizes;
  v1::ListDatasetsRequest request;
  request.set_page_size(2);
  do {
    grpc::ClientContext context;
    v1::ListDatasetsResponse response;
    ASSERT_TRUE(dataset_stub_->ListDatasets(&context, request, &response).ok());
    for (const auto& dataset : response.datasets()) names.push_back(dataset.name());
    sizes.push_back(response.datasets_size());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names, ElementsAre("datasets/a", "datasets/b", "datasets/c", "datasets/d", "datasets/e"));
  EXPECT_THAT(sizes, ElementsAre(2, 2, 1));
}

TEST_F(ServerTest, ListDatasetsHasNoEmptyLastPage) {
  grpc::ClientContext context;
  v1::ListDatasetsRequest request;
  request.set_page_size(1);
  v1::ListDatasetsResponse response;
  ASSERT_TRUE(dataset_stub_->ListDatasets(&context, request, &response).ok());
  EXPECT_EQ(response.next_page_token(), "");
}

TEST_F(ServerTest, DeleteDatasetAsksWhetherAJobUsesIt) {
  jobs_.Create("user");
  v1::DeleteDatasetRequest request;
  request.set_name("datasets/zinc");
  google::protobuf::Empty empty;
  {
    grpc::ClientContext context;
    const grpc::Status status = dataset_stub_->DeleteDataset(&context, request, &empty);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status)->reason(), "DATASET_IN_USE");
  }
  ASSERT_TRUE(jobs_->Cancel(JobId("user")).ok());
  grpc::ClientContext context;
  EXPECT_TRUE(dataset_stub_->DeleteDataset(&context, request, &empty).ok());
  EXPECT_TRUE(jobs_.catalog().List().empty());
}

TEST_F(ServerTest, ServerInfoTellsWhatMainKnowsAndWhatTheRoomsKnow) {
  jobs_.Run("a");
  jobs_.Create("b");
  jobs_.Create("c");
  jobs_.Create("d");
  ASSERT_TRUE(jobs_->Pause(JobId("d")).ok());
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(server_stub_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.device(), "cpu");
  EXPECT_EQ(info.threads(), 2);
  EXPECT_EQ(info.start_time().seconds(), 5);
  EXPECT_THAT(info.import_roots(), ElementsAre("/data"));
  EXPECT_EQ(info.listen_address(), server_->address());
  EXPECT_THAT(info.listen_address(), StartsWith("127.0.0.1:"));
  EXPECT_GT(info.process_id(), 0);
  EXPECT_EQ(info.queued_jobs(), 2);
  EXPECT_EQ(info.running_jobs(), 1);
  EXPECT_EQ(info.paused_jobs(), 1);
  EXPECT_FALSE(info.draining());
  ASSERT_EQ(jobs_->Cancel(JobId("a"))->state, jobs::JobState::kCancelling);
  grpc::ClientContext again;
  ASSERT_TRUE(server_stub_->GetServerInfo(&again, {}, &info).ok());
  EXPECT_EQ(info.running_jobs(), 1) << "it is on the device still";
}

// A value that the device does not report is absent rather than 0.
TEST_F(ServerTest, ServerInfoTellsTheDevicesState) {
  SetDevice({.memory = {.allocated = 5, .reserved = 7, .driver = 0, .recommended_max = 13, .resident = std::nullopt},
             .graph_entries = 0,
             .no_graph_entries_reason = "",
             .empty_caches = {{"job", 1}, {"never", 2}},
             .utilization = 0.5,
             .settings = {{"PYTORCH_ENABLE_MPS_FALLBACK", "1\xff"}},
             .warnings = {"set"}});
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(server_stub_->GetServerInfo(&context, {}, &info).ok());
  const v1::DeviceState& state = info.device_state();
  EXPECT_EQ(state.memory().ShortDebugString(),
            "allocated_bytes: 5 reserved_bytes: 7 driver_bytes: 0 recommended_max_bytes: 13");
  EXPECT_TRUE(state.has_graph_entries());
  EXPECT_EQ(state.graph_entries(), 0);
  ASSERT_EQ(state.empty_caches_size(), 2);
  EXPECT_EQ(state.empty_caches(1).ShortDebugString(), "reason: \"never\" count: 2");
  EXPECT_EQ(state.utilization(), 0.5);
  EXPECT_EQ(state.settings(0).name(), "PYTORCH_ENABLE_MPS_FALLBACK");
  EXPECT_THAT(state.settings(0).value(), StartsWith("1"));
  EXPECT_THAT(state.warnings(), ElementsAre("set"));

  SetDevice({.memory = {}, .no_graph_entries_reason = "not this version"});
  grpc::ClientContext again;
  ASSERT_TRUE(server_stub_->GetServerInfo(&again, {}, &info).ok());
  EXPECT_FALSE(info.device_state().has_graph_entries());
  EXPECT_FALSE(info.device_state().has_utilization());
  EXPECT_EQ(info.device_state().no_graph_entries_reason(), "not this version");
}

TEST_F(ServerTest, AWatchTellsTheServerAndWhatChanges) {
  grpc::ClientContext context;
  const auto reader = server_stub_->WatchServer(&context, {});
  v1::ServerInfo info;
  ASSERT_TRUE(reader->Read(&info));
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_FALSE(info.device_state().has_graph_entries());
  SetDevice({.memory = {}, .graph_entries = 8});
  ASSERT_TRUE(reader->Read(&info));
  EXPECT_EQ(info.device_state().graph_entries(), 8);
  jobs_.Create("a");
  ASSERT_TRUE(reader->Read(&info));
  EXPECT_EQ(info.queued_jobs(), 1);
  jobs_->Drain();
  server_->Shutdown(absl::InfiniteDuration());
  ASSERT_TRUE(reader->Read(&info));
  EXPECT_TRUE(info.draining());
  EXPECT_FALSE(reader->Read(&info));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, DrainAnswersWithTheRunningJobThenAsksMain) {
  jobs_.Run("a");
  grpc::ClientContext context;
  v1::DrainResponse response;
  ASSERT_TRUE(server_stub_->Drain(&context, {}, &response).ok());
  EXPECT_EQ(response.running_job(), "jobs/a");
  EXPECT_TRUE(drain_requested_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(jobs_->draining());
}

TEST(OpenCalls, AnInfiniteLimitWaitsForTheLastCall) {
  OpenCalls calls;
  EXPECT_TRUE(calls.AwaitNone(absl::ZeroDuration()));
  calls.Begin();
  EXPECT_FALSE(calls.AwaitNone(absl::ZeroDuration()));
  std::thread end([&calls] {
    absl::SleepFor(absl::Milliseconds(20));
    calls.End();
  });
  EXPECT_TRUE(calls.AwaitNone(absl::InfiniteDuration()));
  end.join();
}

}  // namespace
}  // namespace permafrost::api
