// Tests jobs with thousands of epochs: they are read in pieces, and nothing is left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "jobs/job_book.h"
#include "jobs/job_store.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

constexpr int64_t kEpochs = 2500;

// Returns whether `epochs` are `count` consecutive epochs that begin with `first`.
bool AreFrom(const std::vector<train::EpochMetrics>& epochs, int64_t first, int64_t count) {
  for (const train::EpochMetrics& metrics : epochs) {
    if (metrics.epoch != first++) return false;
  }
  return std::ssize(epochs) == count;
}

class LongHistoryOfJobTest : public testing::Test {
 protected:
  // Stores a queued job that has already trained.
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
  EXPECT_TRUE(AreFrom(server->Get(id_, 0)->epochs, 1, 1000)) << "of those in memory";
  EXPECT_TRUE(AreFrom(server->Get(id_, 2000)->epochs, 2001, 500));
  EXPECT_TRUE(AreFrom(server.Get("job-a").epochs, 1, kEpochs));
  const auto cancelled = server->Cancel(id_);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_TRUE(AreFrom(cancelled->epochs, 1, kEpochs));
  EXPECT_TRUE(AreFrom(server->Get(id_, 0)->epochs, 1, 1000)) << "of those on record";
  EXPECT_TRUE(AreFrom(server.Get("job-a").epochs, 1, kEpochs));
  const auto retried = server->Retry(id_);
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_TRUE(AreFrom(retried->epochs, 1, kEpochs));
  EXPECT_TRUE(AreFrom(server.Get("job-a").epochs, 1, kEpochs)) << "taken up again with all of them";
}

// A store that calls a hook before it reads a job's epochs.
class WatchedStore final : public JobStore {
 public:
  explicit WatchedStore(std::unique_ptr<JobStore> store) : store_(std::move(store)) {}
  void OnEpochs(std::function<void()> hook) { on_epochs_ = std::move(hook); }

  absl::StatusOr<Job> Get(const JobId& id, int64_t after_epoch) const override {
    if (after_epoch != kNoEpochs && on_epochs_) on_epochs_();
    return store_->Get(id, after_epoch);
  }
  absl::Status Insert(Job& job, const std::string& asked) override { return store_->Insert(job, asked); }
  absl::Status Update(const Job& job, const RequestKey& request) override { return store_->Update(job, request); }
  absl::Status Describe(const Job& job, const RequestKey& request) override { return store_->Describe(job, request); }
  absl::Status PutEpochs(const JobId& id, const std::deque<train::EpochMetrics>& epochs) override {
    return store_->PutEpochs(id, epochs);
  }
  absl::StatusOr<std::optional<Job>> FindByRequestId(const std::string& request_id) const override {
    return store_->FindByRequestId(request_id);
  }
  absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const override { return store_->List(options); }
  absl::Status Delete(const JobId& id, const RequestKey& request) override { return store_->Delete(id, request); }
  absl::StatusOr<int64_t> LastSequence() const override { return store_->LastSequence(); }
  absl::StatusOr<std::optional<RequestRecord>> FindRequest(const RequestKey& request) const override {
    return store_->FindRequest(request);
  }
  absl::StatusOr<std::optional<Creation>> FindCreation(const std::string& request_id) const override {
    return store_->FindCreation(request_id);
  }
  absl::Status PutRequest(const RequestKey& request, const RequestRecord& record) override {
    return store_->PutRequest(request, record);
  }
  absl::Status DropRequest(const std::string& request_id) override { return store_->DropRequest(request_id); }
  absl::Status PutGraphCache(const JobId& id, const graphcache::Snapshot& snapshot,
                             const std::vector<graphcache::EntryInfo>* entries) override {
    return store_->PutGraphCache(id, snapshot, entries);
  }
  absl::StatusOr<std::optional<graphcache::Snapshot>> GetGraphCache(const JobId& id) const override {
    return store_->GetGraphCache(id);
  }
  absl::StatusOr<std::vector<graphcache::EntryInfo>> GetGraphCacheEntries(const JobId& id) const override {
    return store_->GetGraphCacheEntries(id);
  }
  absl::Status PutCacheCommands(const JobId& id, const std::vector<graphcache::Command>& commands,
                                const graphcache::Snapshot* snapshot, const RequestKey& request) override {
    return store_->PutCacheCommands(id, commands, snapshot, request);
  }
  absl::StatusOr<std::vector<graphcache::Command>> GetCacheCommands(const JobId& id) const override {
    return store_->GetCacheCommands(id);
  }

 private:
  const std::unique_ptr<JobStore> store_;
  std::function<void()> on_epochs_;
};

class EpochsOfAnEndedJobTest : public LongHistoryOfJobTest {
 protected:
  EpochsOfAnEndedJobTest() {
    std::filesystem::create_directories(state_ / "jobs/job-a");
    auto store = std::make_unique<WatchedStore>(*JobStore::Open(state_ / "permafrost.db"));
    store_ = store.get();
    book_ = std::make_unique<JobBook>(std::move(store), JobFiles(state_ / "jobs"), metrics_, BookOptions());
    EXPECT_EQ(book_->Recover(/*quarantine_unknown=*/false), absl::OkStatus());
  }

  prometheus::Registry registry_;
  telemetry::JobMetrics metrics_{registry_, StateNames()};
  WatchedStore* store_ = nullptr;
  std::unique_ptr<JobBook> book_;
};

TEST_F(EpochsOfAnEndedJobTest, AreReadWhileTheBookIsFree) {
  const RequestKey pause{.id = "1", .what = "pause"}, resume{.id = "2", .what = "resume"};
  const RequestKey update{.id = "3", .what = "update"}, cancel{.id = "4", .what = "cancel"};
  ASSERT_TRUE(book_->Pause(id_, pause).ok());
  ASSERT_TRUE(book_->Resume(id_, resume).ok());
  ASSERT_TRUE(book_->Update(id_, {.priority = 1}, update).ok());
  ASSERT_TRUE(book_->Cancel(id_, cancel).ok());
  bool locked = false;
  int readings = 0;
  std::vector<std::future<void>> others;
  store_->OnEpochs([&] {
    ++readings;
    if (locked) return;
    others.push_back(std::async(std::launch::async, [&] { book_->LiveCache(id_); }));
    locked = others.back().wait_for(std::chrono::seconds(30)) != std::future_status::ready;
  });
  const struct {
    const char* why;
    std::function<absl::StatusOr<Job>()> call;
  } kCalls[] = {
      {"a pause that comes again", [&] { return book_->Pause(id_, pause); }},
      {"a resumption that comes again", [&] { return book_->Resume(id_, resume); }},
      {"an update that comes again", [&] { return book_->Update(id_, {.priority = 1}, update); }},
      {"a cancellation that comes again", [&] { return book_->Cancel(id_, cancel); }},
      {"an update", [&] { return book_->Update(id_, {.priority = 7}, {}); }},
      {"one that changes nothing", [&] { return book_->Update(id_, {.priority = 7}, {}); }},
  };
  for (const auto& c : kCalls) {
    readings = 0;
    const auto job = c.call();
    ASSERT_TRUE(job.ok()) << c.why << ": " << job.status();
    EXPECT_EQ(job->state, JobState::kCancelled) << c.why;
    EXPECT_TRUE(AreFrom(job->epochs, 1, kEpochs)) << c.why;
    EXPECT_EQ(readings, 3) << c.why;
    ASSERT_FALSE(locked) << c.why;
  }
  EXPECT_EQ(book_->Get(id_, kNoEpochs)->spec.priority, 7);
}

TEST_F(EpochsOfAnEndedJobTest, GoWithItWhereItIsDeletedMeanwhile) {
  ASSERT_TRUE(book_->Cancel(id_, {}).ok());
  store_->OnEpochs([&] { EXPECT_TRUE(book_->Delete(id_, {}, std::nullopt).ok()); });
  const auto updated = book_->Update(id_, {.priority = 7}, {});
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->spec.priority, 7) << "as it was done";
  EXPECT_TRUE(updated->epochs.empty());
}

// While a job is read in pieces, it may be replaced by a new job of the same id. The epochs must not be mixed.
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
