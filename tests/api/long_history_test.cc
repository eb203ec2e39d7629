// Watches of jobs with thousands of epochs.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "jobs/job_store.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

class LongHistoryTest : public ServerTest {
 protected:
  static void AddEpochs(jobs::Job& job, int64_t from, int64_t to) {
    for (int64_t epoch = from; epoch <= to; ++epoch) job.epochs.push_back({.epoch = epoch});
  }
  std::unique_ptr<grpc::ClientReader<v1::Job>> Watch(grpc::ClientContext& context) {
    v1::WatchJobRequest request;
    request.set_name("jobs/a");
    return job_stub_->WatchJob(&context, request);
  }
};

TEST_F(LongHistoryTest, AWatchGetsThoseOfAJobThatTrainsInPieces) {
  jobs::Job job = MakeJob("a", jobs::JobState::kRunning);
  AddEpochs(job, 1, 2500);
  manager_.Put(job);
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
  manager_.Change("a", [](jobs::Job& j) {
    AddEpochs(j, 2501, 2502);
    j.state = jobs::JobState::kSucceeded;
  });
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.epochs_size(), 2);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_TRUE(reader->Finish().ok());
}

// Clients stop at the first terminal state that they see.
TEST_F(LongHistoryTest, TheTerminalStateComesWithAllThatWasNotSent) {
  jobs::Job job = MakeJob("a", jobs::JobState::kSucceeded);
  AddEpochs(job, 1, 2500);
  manager_.Put(job);
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_SUCCEEDED);
  ASSERT_EQ(got.epochs_size(), 2500);
  EXPECT_EQ(got.epochs(2499).epoch(), 2500);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_TRUE(reader->Finish().ok());
  const std::vector<int64_t> asked = manager_.asked_since();
  EXPECT_THAT(std::vector<int64_t>(asked.end() - 3, asked.end()), testing::ElementsAre(0, 1000, 2000)) << "in pieces";
}

}  // namespace
}  // namespace permafrost::api
