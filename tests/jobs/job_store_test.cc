#include "jobs/job_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/status.h"
#include "jobs/job_row.h"
#include "jobs/store_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(JobStoreTest, AJobComesBackWholeFromAnotherProcess) {
  Job job = NewJob("job-a", "request-1");
  job.spec.train.seed = std::numeric_limits<uint64_t>::max();
  job.spec.train.optimizer.learning_rate = 0.1 + 0.2;
  job.spec.priority = 7;
  job.spec.limits = {absl::Minutes(90), absl::Now() + absl::Hours(1)};
  job.spec.max_retries = 5;
  job.dataset_uid = "0123";
  job.labels = {{"team", "a \"quoted\" name"}};
  job.pausing = true;
  train::EpochMetrics first{1, 0.1, 0.2, 0.3, 1e-3, 4, 5, 6};
  train::EpochMetrics second{2, std::numeric_limits<double>::infinity(), 0.2, 0.3, 1e-3, 4, 5, 6};
  {
    const auto store = Open();
    ASSERT_TRUE(store->Insert(job).ok());
    job.state = JobState::kSucceeded;
    job.start_time = job.create_time + absl::Seconds(1);
    job.end_time = job.create_time + absl::Seconds(2);
    job.progress.step = 42;
    job.progress.eta = absl::Milliseconds(3);
    job.result = train::RunResult{2, 0.1, 0.2, 0.3, 0.4, 0.5, 6, 7, 8};
    job.resumes = 3;
    job.deaths = {2, 41, 40};
    job.trouble = {"disk full", 1, absl::FromUnixSeconds(5)};
    job.error = "an 'odd'\nerror";
    job.failure = {absl::StatusCode::kDataLoss, "DATA_DAMAGED", {{"file", "a \"quoted\" one"}}};
    job.interrupted = true;
    job.device_time = absl::Seconds(3) + absl::Nanoseconds(7);
    Move(job, JobState::kQueued, why::kSubmitted);
    Move(job, JobState::kSucceeded, why::kFinished, "a 'line'");
    job.history.dropped = 9;
    ASSERT_TRUE(store->Update(job).ok());
    ASSERT_TRUE(store->PutEpochs(job.id, {second, first}).ok());
    ASSERT_TRUE(store->PutEpochs(job.id, {first}).ok()) << "a resumed run tells an epoch again";
  }
  const auto back = Open()->Get(JobId("job-a"));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->request_id, "request-1");
  EXPECT_EQ(back->deaths, job.deaths);
  EXPECT_EQ(back->trouble, job.trouble);
  EXPECT_EQ(back->spec, job.spec);
  EXPECT_EQ(back->dataset_uid, "0123");
  EXPECT_EQ(back->labels, job.labels);
  EXPECT_TRUE(back->pausing);
  EXPECT_TRUE(back->interrupted);
  EXPECT_EQ(back->failure, job.failure);
  EXPECT_EQ(back->device_time, job.device_time);
  EXPECT_EQ(back->history, job.history);
  EXPECT_EQ(back->state, JobState::kSucceeded);
  EXPECT_EQ(back->create_time, job.create_time);
  EXPECT_EQ(back->start_time, job.start_time);
  EXPECT_EQ(back->end_time, job.end_time);
  EXPECT_EQ(ToJson(ProgressColumn{back->progress}), ToJson(ProgressColumn{job.progress}));
  ASSERT_TRUE(back->result.has_value());
  EXPECT_EQ(ToJson(*back->result), ToJson(*job.result));
  EXPECT_EQ(back->resumes, 3);
  EXPECT_EQ(back->error, job.error);
  EXPECT_EQ(back->sequence, job.sequence);
  ASSERT_EQ(back->epochs.size(), 2u);
  EXPECT_EQ(ToJson(back->epochs[0]), ToJson(first));
  EXPECT_EQ(ToJson(back->epochs[1]), ToJson(second));
  const auto since = Open()->Get(JobId("job-a"), 1);
  ASSERT_TRUE(since.ok()) << since.status();
  ASSERT_EQ(since->epochs.size(), 1u);
  EXPECT_EQ(since->epochs[0].epoch, 2);
}

TEST_F(JobStoreTest, ANewJobHasNoTimesAndNoResult) {
  const auto store = Open();
  Job job = NewJob("job-a");
  ASSERT_TRUE(store->Insert(job).ok());
  const auto back = store->Get(job.id);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->start_time, absl::InfinitePast());
  EXPECT_EQ(back->end_time, absl::InfinitePast());
  EXPECT_FALSE(back->result.has_value());
  EXPECT_EQ(back->request_id, "");
}

TEST_F(JobStoreTest, IdsAndRequestIdsAreTakenOnce) {
  const auto store = Open();
  Job a = NewJob("job-a", "request-1"), again = NewJob("job-a"), reused = NewJob("job-b", "request-1");
  ASSERT_TRUE(store->Insert(a).ok());
  const absl::Status taken = store->Insert(again);
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(GetReason(taken).reason, "JOB_ALREADY_EXISTS");
  EXPECT_EQ(store->Insert(reused).code(), absl::StatusCode::kAlreadyExists);
  Job none = NewJob("job-c"), none_either = NewJob("job-d");
  EXPECT_TRUE(store->Insert(none).ok());
  EXPECT_TRUE(store->Insert(none_either).ok()) << "no request id is not the same request id";
}

TEST_F(JobStoreTest, FindsByRequestId) {
  const auto store = Open();
  Job job = NewJob("job-a", "request-1");
  ASSERT_TRUE(store->Insert(job).ok());
  const auto found = store->FindByRequestId("request-1");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->id, job.id);
  const auto missing = store->FindByRequestId("request-2");
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(missing->has_value());
}

TEST_F(JobStoreTest, WhatIsNotThereIsNotFound) {
  const auto store = Open();
  for (const absl::Status& status :
       {store->Get(JobId("job-x")).status(), store->Update(NewJob("job-x")), store->Delete(JobId("job-x")),
        store->PutEpochs(JobId("job-x"), {{.epoch = 1}}), store->PutGraphCache(JobId("job-x"), {}, nullptr),
        store->GetGraphCache(JobId("job-x")).status(), store->GetGraphCacheEntries(JobId("job-x")).status(),
        store->PutCacheCommands(JobId("job-x"), {{.sequence = 1}}, nullptr)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_EQ(GetReason(status).reason, "JOB_NOT_FOUND");
    EXPECT_THAT(std::string(status.message()), HasSubstr("job-x"));
  }
}

TEST_F(JobStoreTest, ListsNewestFirstByStateAndPage) {
  const auto store = Open();
  std::vector<int64_t> sequences;
  for (const char* id : {"a", "b", "c", "d"}) {
    Job job = NewJob(id);
    ASSERT_TRUE(store->Insert(job).ok());
    sequences.push_back(job.sequence);
    if (job.id.value() != "c") {
      job.state = JobState::kRunning;
      ASSERT_TRUE(store->Update(job).ok());
    }
  }
  ListOptions options;
  EXPECT_THAT(Ids(store->List(options)), ElementsAre("d", "c", "b", "a"));
  options.page_size = 2;
  EXPECT_THAT(Ids(store->List(options)), ElementsAre("d", "c"));
  options.before_sequence = sequences[2];
  EXPECT_THAT(Ids(store->List(options)), ElementsAre("b", "a"));
  options.before_sequence.reset();
  options.states = {JobState::kQueued, JobState::kFailed, JobState::kQueued};
  EXPECT_THAT(Ids(store->List(options)), ElementsAre("c"));
  options.page_size = 0;
  EXPECT_EQ(store->List(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobStoreTest, DeletionTakesTheEpochsAndGivesNoSequenceAgain) {
  const auto store = Open();
  Job job = NewJob("job-a");
  ASSERT_TRUE(store->Insert(job).ok());
  ASSERT_TRUE(store->PutEpochs(job.id, {{.epoch = 1}}).ok());
  const int64_t sequence = job.sequence;
  ASSERT_TRUE(store->Delete(job.id).ok());
  ASSERT_TRUE(store->Insert(job).ok());
  EXPECT_GT(job.sequence, sequence) << "page tokens name a place that must not come back";
  EXPECT_TRUE(store->Get(job.id)->epochs.empty());
}

TEST_F(JobStoreTest, KnowsItsLastSequenceAfterTheLastJobIsDeleted) {
  const auto last = [](const JobStore& store) {
    const absl::StatusOr<int64_t> sequence = store.LastSequence();
    EXPECT_TRUE(sequence.ok()) << sequence.status();
    return sequence.value_or(-1);
  };
  Job job = NewJob("job-a");
  {
    const auto store = Open();
    EXPECT_EQ(last(*store), 0);
    ASSERT_TRUE(store->Insert(job).ok());
    EXPECT_GT(job.sequence, 0);
    EXPECT_EQ(last(*store), job.sequence);
    ASSERT_TRUE(store->Delete(job.id).ok());
    EXPECT_EQ(last(*store), job.sequence);
  }
  EXPECT_EQ(last(*Open()), job.sequence);
}

TEST_F(JobStoreTest, TwoStoresShareAFile) {
  const auto one = Open(), two = Open();
  ASSERT_TRUE(one && two);
  constexpr int kJobs = 20;
  // On a busy machine, a store may fail to get the other one's lock in time. It then returns Unavailable, and the
  // call is retried, as in the daemon.
  const auto retry = [](const auto& call) {
    absl::Status status = call();
    while (absl::IsUnavailable(status)) status = call();
    return status;
  };
  const auto insert = [&retry](JobStore& store, const std::string& prefix) {
    for (int i = 0; i < kJobs; ++i) {
      Job job = NewJob(prefix + std::to_string(i));
      absl::Status stored = retry([&] { return store.Insert(job); });
      EXPECT_TRUE(stored.ok()) << stored;
      job.progress.step = i;
      stored = retry([&] { return store.Update(job); });
      EXPECT_TRUE(stored.ok()) << stored;
    }
  };
  std::thread other([&] { insert(*two, "two-"); });
  insert(*one, "one-");
  other.join();
  ListOptions all;
  all.page_size = 1000;
  const auto jobs = one->List(all);
  ASSERT_TRUE(jobs.ok());
  std::set<int64_t> sequences;
  for (const Job& job : *jobs) sequences.insert(job.sequence);
  EXPECT_EQ(sequences.size(), 2u * kJobs);
}

TEST_F(JobStoreTest, AGraphCacheComesBackFromAnotherProcess) {
  Job job = NewJob("job-a");
  graphcache::Snapshot snapshot;
  snapshot.frozen = true;
  snapshot.command_sequence = 3;
  const std::vector<graphcache::EntryInfo> entries = {{Mode::kEval, {7, 8, 9}, 10, 11}};
  {
    const auto store = Open();
    ASSERT_TRUE(store->Insert(job).ok());
    EXPECT_EQ(store->GetGraphCache(job.id).value(), std::nullopt);
    EXPECT_TRUE(store->GetGraphCacheEntries(job.id).value().empty());
    ASSERT_TRUE(store->PutGraphCache(job.id, {}, &entries).ok());
    ASSERT_TRUE(store->PutGraphCache(job.id, snapshot, nullptr).ok());
  }
  const auto store = Open();
  EXPECT_EQ(store->GetGraphCache(job.id).value(), snapshot);
  EXPECT_EQ(store->GetGraphCacheEntries(job.id).value(), entries) << "they stay where none are given";
  const std::vector<graphcache::EntryInfo> none;
  ASSERT_TRUE(store->PutGraphCache(job.id, snapshot, &none).ok());
  EXPECT_TRUE(store->GetGraphCacheEntries(job.id).value().empty());
}

TEST_F(JobStoreTest, CommandsAreKeptInOrderAndReplacedByTheirStamp) {
  using graphcache::Command;
  Job a = NewJob("job-a"), b = NewJob("job-b");
  const Command thaw{.sequence = 1, .kind = graphcache::CommandKind::kThaw, .step = 4};
  Command clear{.sequence = 2, .kind = graphcache::CommandKind::kClear};
  const Command others{.sequence = 1, .kind = graphcache::CommandKind::kFreeze};
  graphcache::Snapshot snapshot;
  snapshot.command_step = 8;
  {
    const auto store = Open();
    ASSERT_TRUE(store->Insert(a).ok() && store->Insert(b).ok());
    ASSERT_TRUE(store->PutCacheCommands(a.id, {clear, thaw}, nullptr).ok());
    EXPECT_EQ(store->GetGraphCache(a.id).value(), std::nullopt);
    ASSERT_TRUE(store->PutCacheCommands(b.id, {others}, nullptr).ok());
    clear.step = 8;
    ASSERT_TRUE(store->PutCacheCommands(a.id, {clear}, &snapshot).ok());
  }
  const auto store = Open();
  EXPECT_THAT(store->GetCacheCommands(a.id).value(), ElementsAre(thaw, clear));
  EXPECT_THAT(store->GetCacheCommands(b.id).value(), ElementsAre(others));
  EXPECT_EQ(store->GetGraphCache(a.id).value(), snapshot);
}

TEST_F(JobStoreTest, DeletionTakesTheGraphCacheAndItsCommands) {
  const auto store = Open();
  Job job = NewJob("job-a");
  const std::vector<graphcache::EntryInfo> entries(1);
  ASSERT_TRUE(store->Insert(job).ok());
  ASSERT_TRUE(store->PutGraphCache(job.id, {}, &entries).ok());
  ASSERT_TRUE(store->PutCacheCommands(job.id, {{.sequence = 1}}, nullptr).ok());
  ASSERT_TRUE(store->Delete(job.id).ok());
  SQLite::Database database(path_.string());
  EXPECT_EQ(database.execAndGet("SELECT COUNT(*) FROM graph_caches").getInt(), 0);
  EXPECT_EQ(database.execAndGet("SELECT COUNT(*) FROM cache_commands").getInt(), 0);
}

TEST_F(JobStoreTest, ADamagedRowCostsItsJobOnly) {
  const struct {
    const char* why;
    const char* damage;
  } kCases[] = {
      {"a spec that is no JSON", "UPDATE jobs SET spec = '{' WHERE id = 'job-b'"},
      {"a spec of another type", "UPDATE jobs SET spec = '{\"epochs\":\"many\"}' WHERE id = 'job-b'"},
      {"a state that is not known", "UPDATE jobs SET state = 'frozen' WHERE id = 'job-b'"},
      {"progress that is no JSON", "UPDATE jobs SET progress = '' WHERE id = 'job-b'"},
      {"labels that are no JSON", "UPDATE jobs SET labels = '[' WHERE id = 'job-b'"},
      {"a label that is no text", "UPDATE jobs SET labels = '{\"a\":1}' WHERE id = 'job-b'"},
      {"a result that is no JSON", "UPDATE jobs SET result = '?' WHERE id = 'job-b'"},
  };
  for (const auto& c : kCases) {
    const TempDir dir;
    const auto store = *JobStore::Open(dir.path() / "permafrost.db");
    for (const char* id : {"job-a", "job-b", "job-c"}) {
      Job job = NewJob(id);
      ASSERT_TRUE(store->Insert(job).ok());
    }
    SQLite::Database((dir.path() / "permafrost.db").string(), SQLite::OPEN_READWRITE).exec(c.damage);
    const auto jobs = store->List({});
    ASSERT_TRUE(jobs.ok()) << c.why << ": " << jobs.status();
    ASSERT_EQ(jobs->size(), 3u) << c.why;
    for (const Job& job : *jobs) EXPECT_EQ(job.unreadable, job.id.value() == "job-b") << c.why;
    const auto damaged = store->Get(JobId("job-b"));
    ASSERT_TRUE(damaged.ok()) << c.why << ": " << damaged.status();
    EXPECT_EQ(damaged->state, JobState::kFailed) << c.why;
    EXPECT_THAT(damaged->error, HasSubstr("the record of job job-b")) << c.why;
    EXPECT_TRUE(store->Delete(JobId("job-b")).ok()) << c.why;
  }
}

TEST_F(JobStoreTest, AnEpochThatCannotBeReadCostsItselfOnly) {
  const auto store = Open();
  Job job = NewJob("job-a");
  ASSERT_TRUE(store->Insert(job).ok());
  ASSERT_TRUE(store->PutEpochs(job.id, {{.epoch = 1}, {.epoch = 2}}).ok());
  SQLite::Database(path_.string(), SQLite::OPEN_READWRITE).exec("UPDATE epochs SET metrics = '' WHERE epoch = 1");
  const auto back = store->Get(job.id);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_FALSE(back->unreadable);
  ASSERT_EQ(back->epochs.size(), 1u);
  EXPECT_EQ(back->epochs[0].epoch, 2);
}

}  // namespace
}  // namespace permafrost::jobs
