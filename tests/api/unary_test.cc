// Tests calls that wait for a thread.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "api/held_worker.h"
#include "api/server_fixture.h"

namespace permafrost::api {
namespace {

class UnaryTest : public ServerTest {
 protected:
  UnaryTest() { limits_.threads = 1; }
};

TEST_F(UnaryTest, ACallThatIsGivenUpWhileItWaitsIsNeverBegun) {
  jobs_.Create("a");
  HeldWorker worker(jobs_.catalog(), *dataset_stub_);
  {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    v1::CancelJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    const grpc::Status status = job_stub_->CancelJob(&context, request, &job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  }
  grpc::Status paused;
  std::thread later([&] {
    grpc::ClientContext context;
    v1::PauseJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    paused = job_stub_->PauseJob(&context, request, &job);
  });
  // These calls need no worker thread. Each is answered after everything that its connection brought before, so the
  // server knows by then that CancelJob was given up.
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    v1::ServerInfo info;
    EXPECT_TRUE(server_stub_->GetServerInfo(&context, {}, &info).ok());
  }
  const grpc::Status got = worker.Release();
  later.join();
  EXPECT_TRUE(got.ok()) << got.error_message();
  EXPECT_TRUE(paused.ok()) << paused.error_message();
  EXPECT_TRUE(counts_.Await("JobService/CancelJob CANCELLED", 1));
  EXPECT_EQ(jobs_.Get("a").state, jobs::JobState::kPaused) << "what nobody waits for was done";
}

// Another process holds a write lock on the database, as a sqlite3 shell could.
class LockedTest : public UnaryTest {
 protected:
  void SetUp() override {
    UnaryTest::SetUp();
    jobs_.Create("a");
    other_.exec("BEGIN IMMEDIATE");
  }
  grpc::Status Pause(grpc::ClientContext& context) {
    v1::PauseJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    return job_stub_->PauseJob(&context, request, &job);
  }

  SQLite::Database other_{(jobs_.state_dir() / "permafrost.db").string(), SQLite::OPEN_READWRITE, 5000};
};

// The call waits for only a part of its deadline, so that its client still gets the answer in time.
TEST_F(LockedTest, ACallWaitsForAPartOfItsTimeOnly) {
  for (const absl::Duration timeout : {absl::Seconds(4), absl::InfiniteDuration()}) {
    grpc::ClientContext context;
    if (timeout < absl::InfiniteDuration()) context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    const grpc::Status status = Pause(context);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_THAT(status.error_message(), testing::HasSubstr("locked"));
  }
  other_.exec("COMMIT");
  EXPECT_EQ(jobs_.Get("a").state, jobs::JobState::kQueued) << "nothing was done";
  grpc::ClientContext context;
  EXPECT_TRUE(Pause(context).ok());
}

TEST_F(LockedTest, ACallThatIsGivenUpWhileItWaitsDoesNothing) {
  grpc::ClientContext context;
  std::thread client([&] { EXPECT_EQ(Pause(context).error_code(), grpc::StatusCode::CANCELLED); });
  absl::SleepFor(absl::Milliseconds(100));
  context.TryCancel();
  client.join();
  ASSERT_TRUE(counts_.Await("JobService/PauseJob CANCELLED", 1));
  other_.exec("COMMIT");
  // The only thread serves this call after the abandoned one.
  grpc::ClientContext after;
  v1::GetJobRequest request;
  request.set_name("jobs/a");
  v1::Job job;
  ASSERT_TRUE(job_stub_->GetJob(&after, request, &job).ok());
  EXPECT_EQ(job.state(), v1::Job::STATE_QUEUED);
}

TEST_F(LockedTest, ACallOnAThreadOfItsOwnWaitsNoLonger) {
  jobs_.catalog().Put("unused");
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(4)));
  v1::DeleteDatasetRequest request;
  request.set_name("datasets/unused");
  request.set_request_id("one");
  google::protobuf::Empty empty;
  const grpc::Status status = dataset_stub_->DeleteDataset(&context, request, &empty);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  other_.exec("COMMIT");
  EXPECT_TRUE(jobs_.catalog().Get(DatasetId("unused")).ok()) << "nothing was done";
}

}  // namespace
}  // namespace permafrost::api
