// Tests labels, filters, pause, resume, retry, update and checkpoints over a real channel.
#include <gmock/gmock.h>

#include "api/wire/convert_job.h"
#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobVerbTest : public ServerTest {
 protected:
  // Runs a job `a` with a label.
  void RunLabelled() {
    jobs::CreateRequest request = jobs::Server::Request("a");
    request.labels = {{"team", "gnn"}};
    jobs_.Run(request);
  }
  v1::Job Update(const v1::UpdateJobRequest& request, grpc::Status& status) {
    grpc::ClientContext context;
    v1::Job job;
    status = job_stub_->UpdateJob(&context, request, &job);
    return job;
  }
};

TEST_F(JobVerbTest, LabelsComeWithTheRequestAndTheJobTellsThem) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.set_job_id("mine");
  request.mutable_spec()->set_dataset("datasets/zinc");
  (*request.mutable_labels())["team"] = "gnn";
  v1::Job job;
  ASSERT_TRUE(job_stub_->CreateJob(&context, request, &job).ok());
  EXPECT_EQ(jobs_.Get("mine").labels, (jobs::Labels{{"team", "gnn"}}));
  request.set_job_id("other");
  (*request.mutable_labels())["Team"] = "gnn";
  grpc::ClientContext again;
  const grpc::Status refused = job_stub_->CreateJob(&again, request, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(refused)->field_violations(0).field(), "labels.Team");

  ASSERT_TRUE(jobs_->Cancel(JobId("mine")).ok());
  RunLabelled();
  ASSERT_TRUE(jobs_->Pause(JobId("a")).ok());
  grpc::ClientContext get_context;
  v1::GetJobRequest get;
  get.set_name("jobs/a");
  ASSERT_TRUE(job_stub_->GetJob(&get_context, get, &job).ok());
  EXPECT_EQ(job.labels().at("team"), "gnn");
  EXPECT_EQ(job.etag(), jobs::EtagOf(jobs_.Get("a")));
  EXPECT_TRUE(job.pausing());
}

TEST_F(JobVerbTest, TheFilterIsHandedOn) {
  jobs_.Create("low", 2, 3);
  jobs_.Create("high", 2, 4);
  grpc::ClientContext context;
  v1::ListJobsRequest request;
  request.set_filter("priority > 3");
  v1::ListJobsResponse response;
  ASSERT_TRUE(job_stub_->ListJobs(&context, request, &response).ok());
  ASSERT_EQ(response.jobs_size(), 1);
  EXPECT_EQ(response.jobs(0).name(), "jobs/high");
}

TEST_F(JobVerbTest, EachVerbReachesItsMethodAndAnswersWithTheJob) {
  jobs_.Create("a");
  const auto call = [&](auto request, auto method, v1::Job::State state) {
    request.set_name("jobs/a");
    grpc::ClientContext context;
    v1::Job job;
    const grpc::Status status = ((*job_stub_).*method)(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(job.name(), "jobs/a");
    EXPECT_EQ(job.state(), state);
    request.set_name("a");
    grpc::ClientContext bad;
    EXPECT_EQ(((*job_stub_).*method)(&bad, request, &job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  };
  call(v1::PauseJobRequest(), &v1::JobService::Stub::PauseJob, v1::Job::STATE_PAUSED);
  call(v1::ResumeJobRequest(), &v1::JobService::Stub::ResumeJob, v1::Job::STATE_QUEUED);
  call(v1::CancelJobRequest(), &v1::JobService::Stub::CancelJob, v1::Job::STATE_CANCELLED);
  call(v1::RetryJobRequest(), &v1::JobService::Stub::RetryJob, v1::Job::STATE_QUEUED);
}

TEST_F(JobVerbTest, AnUpdateSaysWhatTheMaskSays) {
  RunLabelled();
  grpc::Status status;
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name("jobs/a");
  request.mutable_job()->set_etag(jobs::EtagOf(jobs_.Get("a")));
  request.mutable_job()->mutable_spec()->set_priority(7);
  (*request.mutable_job()->mutable_labels())["team"] = "ml";
  (*request.mutable_job()->mutable_labels())["gone"] = "soon";
  Update(request, status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(jobs_.Get("a").spec.priority, 7) << "without a mask, what the job has";
  EXPECT_EQ(jobs_.Get("a").labels, (jobs::Labels{{"gone", "soon"}, {"team", "ml"}}));

  request.mutable_job()->clear_etag();
  request.mutable_job()->mutable_spec()->set_priority(9);
  request.mutable_job()->clear_labels();
  (*request.mutable_job()->mutable_labels())["team"] = "both";
  request.mutable_update_mask()->add_paths("labels.team");
  request.mutable_update_mask()->add_paths("labels.gone");
  Update(request, status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(jobs_.Get("a").spec.priority, 7) << "it is not in the mask";
  EXPECT_EQ(jobs_.Get("a").labels, (jobs::Labels{{"team", "both"}}));

  request.mutable_update_mask()->clear_paths();
  request.mutable_update_mask()->add_paths("labels");
  request.mutable_update_mask()->add_paths("spec.priority");
  request.mutable_job()->clear_labels();
  request.mutable_job()->mutable_spec()->set_priority(0);
  Update(request, status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(jobs_.Get("a").labels, jobs::Labels()) << "all of them go";
  EXPECT_EQ(jobs_.Get("a").spec.priority, 0);
}

TEST_F(JobVerbTest, PathsThatCannotBeUpdatedAreNamed) {
  RunLabelled();
  const std::string before = jobs::EtagOf(jobs_.Get("a"));
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name("jobs/a");
  for (const char* path : {"spec.epochs", "labels.", "labels.Team", "labelsx", "state", "labels.ok"}) {
    request.mutable_update_mask()->add_paths(path);
  }
  grpc::Status status;
  Update(request, status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = Detail<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad->field_violations_size(), 5);
  EXPECT_EQ(bad->field_violations(0).field(), "update_mask.paths[0]");
  EXPECT_THAT(bad->field_violations(0).description(), HasSubstr("accepted: labels, labels.KEY, spec.priority"));
  EXPECT_EQ(jobs::EtagOf(jobs_.Get("a")), before) << "nothing is changed";
  request.mutable_job()->set_name("a");
  Update(request, status);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "job.name");
}

TEST_F(JobVerbTest, AStaleEtagIsAborted) {
  RunLabelled();
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name("jobs/a");
  request.mutable_job()->set_etag("stale");
  request.mutable_job()->mutable_spec()->set_priority(7);
  grpc::Status status;
  Update(request, status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status)->reason(), "ETAG_MISMATCH");
}

TEST(CheckpointToWire, TellsWholeAndDamagedOnes) {
  const v1::Checkpoint whole = CheckpointToWire({.step = 40,
                                                 .epochs_done = 2,
                                                 .batch = 5,
                                                 .best_epoch = 1,
                                                 .time = absl::FromUnixSeconds(9),
                                                 .bytes = 1234,
                                                 .damage = ""});
  EXPECT_EQ(whole.state(), v1::Checkpoint::STATE_COMPLETE);
  EXPECT_EQ(whole.step(), 40);
  EXPECT_EQ(whole.epoch(), 3);
  EXPECT_EQ(whole.batch(), 5);
  EXPECT_EQ(whole.best_epoch(), 1);
  EXPECT_EQ(whole.create_time().seconds(), 9);
  EXPECT_EQ(whole.total_bytes(), 1234);
  const v1::Checkpoint damaged =
      CheckpointToWire({.step = 30, .epochs_done = 2, .batch = 0, .damage = "state.json: is missing"});
  EXPECT_EQ(damaged.state(), v1::Checkpoint::STATE_DAMAGED);
  EXPECT_EQ(damaged.epoch(), 2) << "its end";
  EXPECT_FALSE(damaged.has_create_time());
  EXPECT_EQ(damaged.error(), "state.json: is missing");
}

TEST_F(JobVerbTest, CheckpointsAreListedAndVerified) {
  jobs_.Create("a");
  // The file's size is as in the manifest, but its bytes differ. Only a verification reads them.
  WriteCheckpoint(jobs_, "a", 40, "weights", "0123456789abcdef");
  jobs_.WriteFile("a", "checkpoints/30/model.safetensors", "weights");
  v1::ListCheckpointsRequest request;
  request.set_parent("jobs/a");
  for (const bool verify : {false, true}) {
    request.set_verify(verify);
    grpc::ClientContext context;
    v1::ListCheckpointsResponse response;
    const grpc::Status status = job_stub_->ListCheckpoints(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.checkpoints_size(), 2);
    EXPECT_EQ(response.checkpoints(0).step(), 40) << "newest first";
    EXPECT_EQ(response.checkpoints(0).state(), verify ? v1::Checkpoint::STATE_DAMAGED : v1::Checkpoint::STATE_COMPLETE)
        << response.checkpoints(0).error();
    EXPECT_EQ(response.checkpoints(1).state(), v1::Checkpoint::STATE_DAMAGED);
    EXPECT_THAT(response.checkpoints(1).error(), HasSubstr("state.json"));
  }
  grpc::ClientContext other;
  v1::ListCheckpointsResponse response;
  request.set_parent("jobs/none");
  EXPECT_EQ(job_stub_->ListCheckpoints(&other, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace permafrost::api
