// Jobs with thousands of epochs: they are read in pieces, and nothing is left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <iterator>
#include <vector>

#include "absl/time/clock.h"
#include "jobs/job_store.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

constexpr int64_t kEpochs = 2500;

// Whether the epochs are those from `first` on, `count` of them, in order.
bool AreFrom(const std::vector<train::EpochMetrics>& epochs, int64_t first, int64_t count) {
  for (const train::EpochMetrics& metrics : epochs) {
    if (metrics.epoch != first++) return false;
  }
  return std::ssize(epochs) == count;
}

class LongHistoryOfJobTest : public testing::Test {
 protected:
  // A queued job that has trained before.
  LongHistoryOfJobTest() {
    std::filesystem::create_directories(state_);
    const auto store = JobStore::Open(state_ / "permafrost.db");
    Job job;
    job.id = JobId("job-a");
    job.request_id = "one";
    job.spec.train.dataset = DatasetId("zinc");
    job.create_time = absl::Now();
    EXPECT_TRUE((*store)->Insert(job).ok());
    std::deque<train::EpochMetrics> epochs;
    for (int64_t epoch = 1; epoch <= kEpochs; ++epoch) epochs.push_back({.epoch = epoch});
    EXPECT_TRUE((*store)->PutEpochs(job.id, epochs).ok());
  }

  const TempDir dir_;
  const std::filesystem::path state_ = dir_.path() / "state";
  const JobId id_{"job-a"};
};

TEST_F(LongHistoryOfJobTest, AStoreGivesAPieceUnlessAskedForAll) {
  const auto store = JobStore::Open(state_ / "permafrost.db");
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE(AreFrom((*store)->Get(id_, 0)->epochs, 1, 1000));
  EXPECT_TRUE(AreFrom((*store)->Get(id_, 1000)->epochs, 1001, 1000));
  EXPECT_TRUE(AreFrom((*store)->Get(id_, 2000)->epochs, 2001, 500));
  EXPECT_TRUE(AreFrom((*store)->Get(id_, kNoEpochs)->epochs, 0, 0));
  EXPECT_TRUE(AreFrom((*store)->Get(id_)->epochs, 1, kEpochs));
  EXPECT_TRUE((**(*store)->FindByRequestId("one")).epochs.empty());
}

TEST_F(LongHistoryOfJobTest, AJobIsTheSameBeforeItsEndAndAfter) {
  Server server(state_);
  EXPECT_TRUE(AreFrom(server->GetSince(id_, 0)->epochs, 1, 1000)) << "of those in memory";
  EXPECT_TRUE(AreFrom(server->GetSince(id_, 2000)->epochs, 2001, 500));
  EXPECT_TRUE(AreFrom(server.Get("job-a").epochs, 1, kEpochs));
  const auto cancelled = server->Cancel(id_);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_TRUE(AreFrom(cancelled->epochs, 1, kEpochs));
  EXPECT_TRUE(AreFrom(server->GetSince(id_, 0)->epochs, 1, 1000)) << "of those on record";
  EXPECT_TRUE(AreFrom(server.Get("job-a").epochs, 1, kEpochs));
  const auto retried = server->Retry(id_);
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_TRUE(AreFrom(retried->epochs, 1, kEpochs));
  EXPECT_TRUE(AreFrom(server.Get("job-a").epochs, 1, kEpochs)) << "taken up again with all of them";
}

// Another job that is made under the id of one that is being read has nothing of it.
TEST(GetInPiecesTest, EpochsAreOfOneJob) {
  std::vector<int64_t> asked;
  const auto job = GetInPieces(0, [&](int64_t after_epoch) -> absl::StatusOr<Job> {
    asked.push_back(after_epoch);
    Job given;
    given.sequence = asked.size() == 1 ? 1 : 2;
    const int64_t last = asked.size() == 1 ? 1000 : 10;
    for (int64_t epoch = after_epoch + 1; epoch <= last; ++epoch) given.epochs.push_back({.epoch = epoch});
    return given;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->sequence, 2);
  EXPECT_TRUE(AreFrom(job->epochs, 1, 10));
  EXPECT_THAT(asked, testing::ElementsAre(0, 1000, 0));
}

}  // namespace
}  // namespace permafrost::jobs
