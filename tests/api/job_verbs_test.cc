// Labels, filters, pause, resume, retry, update and checkpoints over a real channel.
#include <gmock/gmock.h>

#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobVerbTest : public ServerTest {
 protected:
  static jobs::Job LabelledJob() {
    jobs::Job job = MakeJob("a", jobs::JobState::kRunning);
    job.labels = {{"team", "gnn"}};
    job.pausing = true;
    return job;
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
  request.mutable_spec()->set_dataset("datasets/zinc");
  (*request.mutable_labels())["team"] = "gnn";
  v1::Job job;
  ASSERT_TRUE(job_stub_->CreateJob(&context, request, &job).ok());
  EXPECT_EQ(manager_.created().labels, (jobs::Labels{{"team", "gnn"}}));
  (*request.mutable_labels())["Team"] = "gnn";
  grpc::ClientContext again;
  const grpc::Status refused = job_stub_->CreateJob(&again, request, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(refused)->field_violations(0).field(), "labels.Team");

  manager_.Put(LabelledJob());
  grpc::ClientContext get_context;
  v1::GetJobRequest get;
  get.set_name("jobs/a");
  ASSERT_TRUE(job_stub_->GetJob(&get_context, get, &job).ok());
  EXPECT_EQ(job.labels().at("team"), "gnn");
  EXPECT_EQ(job.etag(), jobs::EtagOf(LabelledJob()));
  EXPECT_TRUE(job.pausing());
}

TEST_F(JobVerbTest, TheFilterIsHandedOn) {
  grpc::ClientContext context;
  v1::ListJobsRequest request;
  request.set_filter("priority > 3");
  v1::ListJobsResponse response;
  ASSERT_TRUE(job_stub_->ListJobs(&context, request, &response).ok());
  EXPECT_EQ(manager_.listed_filter(), "priority > 3");
}

TEST_F(JobVerbTest, EachVerbReachesItsMethodAndAnswersWithTheJob) {
  jobs::Job paused = MakeJob("a", jobs::JobState::kPaused);
  manager_.Put(paused);
  const auto call = [&](auto request, auto method) {
    request.set_name("jobs/a");
    grpc::ClientContext context;
    v1::Job job;
    const grpc::Status status = ((*job_stub_).*method)(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(job.state(), v1::Job::STATE_PAUSED);
    request.set_name("a");
    grpc::ClientContext bad;
    EXPECT_EQ(((*job_stub_).*method)(&bad, request, &job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  };
  call(v1::PauseJobRequest(), &v1::JobService::Stub::PauseJob);
  call(v1::ResumeJobRequest(), &v1::JobService::Stub::ResumeJob);
  call(v1::RetryJobRequest(), &v1::JobService::Stub::RetryJob);
  call(v1::CancelJobRequest(), &v1::JobService::Stub::CancelJob);
  EXPECT_THAT(manager_.verbs(), ElementsAre("pause a", "resume a", "retry a", "cancel a"));
}

TEST_F(JobVerbTest, AnUpdateSaysWhatTheMaskSays) {
  manager_.Put(LabelledJob());
  grpc::Status status;
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name("jobs/a");
  request.mutable_job()->set_etag("e1");
  request.mutable_job()->mutable_spec()->set_priority(7);
  (*request.mutable_job()->mutable_labels())["team"] = "ml";
  Update(request, status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(manager_.update().etag, "e1");
  EXPECT_EQ(manager_.update().priority, 7) << "without a mask, what the job has";
  EXPECT_EQ(manager_.update().labels, (jobs::Labels{{"team", "ml"}}));

  request.mutable_update_mask()->add_paths("labels.team");
  request.mutable_update_mask()->add_paths("labels.gone");
  Update(request, status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(manager_.update().priority.has_value());
  EXPECT_FALSE(manager_.update().labels.has_value());
  EXPECT_THAT(manager_.update().label_changes,
              ElementsAre(testing::Pair("gone", std::nullopt), testing::Pair("team", "ml")));

  request.mutable_update_mask()->clear_paths();
  request.mutable_update_mask()->add_paths("labels");
  request.mutable_update_mask()->add_paths("spec.priority");
  request.mutable_job()->clear_labels();
  request.mutable_job()->mutable_spec()->set_priority(0);
  Update(request, status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(manager_.update().labels, jobs::Labels()) << "all of them go";
  EXPECT_EQ(manager_.update().priority, 0);
}

TEST_F(JobVerbTest, PathsThatCannotBeUpdatedAreNamed) {
  manager_.Put(LabelledJob());
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
  EXPECT_THAT(manager_.verbs(), testing::IsEmpty());
  request.mutable_job()->set_name("a");
  Update(request, status);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "job.name");
}

TEST_F(JobVerbTest, AStaleEtagIsAborted) {
  manager_.Put(LabelledJob());
  manager_.FailNext(WithReason(absl::AbortedError("has changed since"), "ETAG_MISMATCH", {{"job", "a"}}));
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name("jobs/a");
  grpc::Status status;
  Update(request, status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status)->reason(), "ETAG_MISMATCH");
}

TEST_F(JobVerbTest, CheckpointsAreTold) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  manager_.SetCheckpoints({{.step = 40,
                            .epochs_done = 2,
                            .batch = 5,
                            .best_epoch = 1,
                            .time = absl::FromUnixSeconds(9),
                            .bytes = 1234,
                            .damage = ""},
                           {.step = 30, .epochs_done = 2, .batch = 0, .damage = "state.json: is missing"}});
  grpc::ClientContext context;
  v1::ListCheckpointsRequest request;
  request.set_parent("jobs/a");
  request.set_verify(true);
  v1::ListCheckpointsResponse response;
  const grpc::Status status = job_stub_->ListCheckpoints(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(manager_.verbs(), ElementsAre("verify a"));
  ASSERT_EQ(response.checkpoints_size(), 2);
  const v1::Checkpoint& whole = response.checkpoints(0);
  EXPECT_EQ(whole.state(), v1::Checkpoint::STATE_COMPLETE);
  EXPECT_EQ(whole.step(), 40);
  EXPECT_EQ(whole.epoch(), 3);
  EXPECT_EQ(whole.batch(), 5);
  EXPECT_EQ(whole.best_epoch(), 1);
  EXPECT_EQ(whole.create_time().seconds(), 9);
  EXPECT_EQ(whole.total_bytes(), 1234);
  const v1::Checkpoint& damaged = response.checkpoints(1);
  EXPECT_EQ(damaged.state(), v1::Checkpoint::STATE_DAMAGED);
  EXPECT_EQ(damaged.epoch(), 2) << "its end";
  EXPECT_FALSE(damaged.has_create_time());
  EXPECT_EQ(damaged.error(), "state.json: is missing");
  grpc::ClientContext other;
  request.set_parent("jobs/none");
  EXPECT_EQ(job_stub_->ListCheckpoints(&other, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace permafrost::api
