// Calls that wait for a thread.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "api/held_worker.h"
#include "api/server_fixture.h"
#include "base/patience.h"

namespace permafrost::api {
namespace {

class UnaryTest : public ServerTest {
 protected:
  UnaryTest() { limits_.threads = 1; }
};

TEST_F(UnaryTest, ACallThatIsGivenUpWhileItWaitsIsNeverBegun) {
  HeldWorker worker(manager_, *job_stub_);
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
  // Answered without that thread, and after what the connection brought before: that a call was given up.
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    v1::ServerInfo info;
    EXPECT_TRUE(server_stub_->GetServerInfo(&context, {}, &info).ok());
  }
  const grpc::Status resumed = worker.Release();
  later.join();
  EXPECT_TRUE(resumed.ok()) << resumed.error_message();
  EXPECT_TRUE(paused.ok()) << paused.error_message();
  EXPECT_TRUE(counts_.Await("JobService/CancelJob CANCELLED", 1));
  EXPECT_THAT(manager_.verbs(), testing::ElementsAre("resume a", "pause a")) << "what nobody waits for was done";
}

TEST_F(UnaryTest, ACallWaitsForALockedDatabaseForAPartOfItsTimeOnly) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  absl::Mutex mu;
  std::vector<absl::Duration> left;
  std::atomic<bool> given_up = false;
  manager_.SetVerbWait([&](const std::string& verb) {
    {
      const absl::MutexLock lock(&mu);
      left.push_back(Patience::Left(absl::InfiniteDuration()));
    }
    if (verb != "pause") return;
    while (Patience::IsWanted()) absl::SleepFor(absl::Milliseconds(1));
    given_up = true;
  });
  v1::Job job;
  {
    grpc::ClientContext context;
    v1::ResumeJobRequest request;
    request.set_name("jobs/a");
    EXPECT_TRUE(job_stub_->ResumeJob(&context, request, &job).ok());
  }
  {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(2)));
    v1::PauseJobRequest request;
    request.set_name("jobs/a");
    const grpc::Status status = job_stub_->PauseJob(&context, request, &job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  }
  while (!given_up) absl::SleepFor(absl::Milliseconds(1));
  manager_.SetVerbWait(nullptr);
  const absl::MutexLock lock(&mu);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_GT(left[0], absl::ZeroDuration());
  EXPECT_LE(left[0], absl::Seconds(5)) << "of a call without a deadline";
  // A part of the time that the client gives it, which the wire rounds up: a call that is given up in time leaves its
  // client some.
  EXPECT_LT(left[1], absl::Seconds(2)) << "so that its client hears of it in time";
}

TEST_F(UnaryTest, ACallOnAThreadOfItsOwnWaitsNoLongerForALockedDatabase) {
  data::Dataset dataset;
  dataset.id = DatasetId("zinc");
  catalog_.Put(dataset);
  std::atomic<bool> given_up = false;
  absl::Duration left;
  catalog_.SetDeleteWait([&] {
    left = Patience::Left(absl::InfiniteDuration());
    while (Patience::IsWanted()) absl::SleepFor(absl::Milliseconds(1));
    given_up = true;
  });
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(2)));
  v1::DeleteDatasetRequest request;
  request.set_name("datasets/zinc");
  google::protobuf::Empty empty;
  const grpc::Status status = dataset_stub_->DeleteDataset(&context, request, &empty);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  while (!given_up) absl::SleepFor(absl::Milliseconds(1));
  catalog_.SetDeleteWait(nullptr);
  EXPECT_LT(left, absl::Seconds(2)) << "so that its client hears of it in time";
}

}  // namespace
}  // namespace permafrost::api
