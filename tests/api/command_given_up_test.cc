// Tests graph cache commands whose clients leave before a thread serves them.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/held_worker.h"
#include "api/server_fixture.h"

namespace permafrost::api {
namespace {

class CommandGivenUpTest : public ServerTest {
 protected:
  CommandGivenUpTest() { limits_.threads = 1; }
};

TEST_F(CommandGivenUpTest, ItIsNeverBegun) {
  train::RunContext& run = jobs_.Run("a");
  HeldWorker worker(jobs_.catalog(), *dataset_stub_);
  {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    v1::FreezeGraphCacheRequest request;
    request.set_name("jobs/a/graphCache");
    v1::GraphCache cache;
    const grpc::Status status = cache_stub_->FreezeGraphCache(&context, request, &cache);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  }
  EXPECT_TRUE(counts_.Await("GraphCacheService/FreezeGraphCache CANCELLED", 1));
  const grpc::Status got = worker.Release();
  EXPECT_TRUE(got.ok()) << got.error_message();
  {
    // Its turn comes after the abandoned call.
    grpc::ClientContext context;
    v1::PauseJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    const grpc::Status paused = job_stub_->PauseJob(&context, request, &job);
    EXPECT_TRUE(paused.ok()) << paused.error_message();
  }
  EXPECT_TRUE(run.TakeCacheCommands(0, 1).empty()) << "what nobody waits for was done";
}

}  // namespace
}  // namespace permafrost::api
