// Calls that wait for a thread.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

class UnaryTest : public ServerTest {
 protected:
  UnaryTest() { limits_.threads = 1; }
};

TEST_F(UnaryTest, ACallThatIsGivenUpWhileItWaitsIsNeverBegun) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  absl::Notification held, release;
  // The one thread that the others wait for.
  manager_.SetVerbWait([&](const std::string& verb) {
    if (verb != "resume") return;
    held.Notify();
    release.WaitForNotification();
  });
  grpc::Status resumed, paused;
  std::thread first([&] {
    grpc::ClientContext context;
    v1::ResumeJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    resumed = job_stub_->ResumeJob(&context, request, &job);
  });
  held.WaitForNotification();
  {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    v1::CancelJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    const grpc::Status status = job_stub_->CancelJob(&context, request, &job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  }
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
  release.Notify();
  first.join();
  later.join();
  EXPECT_TRUE(resumed.ok()) << resumed.error_message();
  EXPECT_TRUE(paused.ok()) << paused.error_message();
  EXPECT_TRUE(counts_.Await("JobService/CancelJob CANCELLED", 1));
  EXPECT_THAT(manager_.verbs(), testing::ElementsAre("resume a", "pause a")) << "what nobody waits for was done";
}

}  // namespace
}  // namespace permafrost::api
