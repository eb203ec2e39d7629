// Tests watches of jobs with thousands of epochs.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "server_fixture.h"

namespace permafrost::api {
namespace {

class LongHistoryTest : public ServerTest {
 protected:
  std::unique_ptr<grpc::ClientReader<v1::Job>> Watch(grpc::ClientContext& context) {
    v1::WatchJobRequest request;
    request.set_name("jobs/a");
    return job_stub_->WatchJob(&context, request);
  }
};

TEST_F(LongHistoryTest, AWatchGetsThoseOfAJobThatTrainsInPieces) {
  train::RunContext& run = jobs_.Run("a");
  for (int64_t epoch = 1; epoch <= 2500; ++epoch) run.OnEpoch({.epoch = epoch});
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::Job got;
  std::vector<int> pieces;
  int64_t next = 1;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(reader->Read(&got));
    pieces.push_back(got.epochs_size());
    for (const v1::EpochMetrics& epoch : got.epochs()) EXPECT_EQ(epoch.epoch(), next++);
  }
  EXPECT_THAT(pieces, testing::ElementsAre(1000, 1000, 500));
  run.OnEpoch({.epoch = next});
  run.OnEpoch({.epoch = next + 1});
  jobs_.Succeed();
  while (reader->Read(&got)) {
    for (const v1::EpochMetrics& epoch : got.epochs()) EXPECT_EQ(epoch.epoch(), next++);
  }
  EXPECT_EQ(next, 2503);
  EXPECT_EQ(got.state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_TRUE(reader->Finish().ok());
}

// Clients stop at the first terminal state, so it must come with all epochs that were not sent before.
TEST_F(LongHistoryTest, TheTerminalStateComesWithAllThatWasNotSent) {
  jobs::Job job = MakeJob("a", jobs::JobState::kSucceeded);
  for (int64_t epoch = 1; epoch <= 2500; ++epoch) job.epochs.push_back({.epoch = epoch});
  jobs_.Record(job);
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_SUCCEEDED);
  ASSERT_EQ(got.epochs_size(), 2500);
  EXPECT_EQ(got.epochs(2499).epoch(), 2500);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_TRUE(reader->Finish().ok());
}

}  // namespace
}  // namespace permafrost::api
