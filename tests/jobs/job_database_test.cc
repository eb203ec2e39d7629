// Tests databases of other versions, files that are no database, and the rows of requests.
#include "jobs/job_database.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "jobs/store_fixture.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

// A database as the first release wrote it: its schema, and a job with one epoch.
constexpr char kVersion1[] = R"sql(
  PRAGMA journal_mode = WAL;
  CREATE TABLE jobs (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    request_id TEXT UNIQUE,
    state TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    start_time INTEGER,
    end_time INTEGER,
    spec TEXT NOT NULL,
    progress TEXT NOT NULL,
    result TEXT,
    error TEXT NOT NULL,
    resumes INTEGER NOT NULL
  );
  CREATE INDEX jobs_by_state ON jobs (state, sequence);
  CREATE TABLE epochs (
    job INTEGER NOT NULL REFERENCES jobs (sequence) ON DELETE CASCADE,
    epoch INTEGER NOT NULL,
    metrics TEXT NOT NULL,
    PRIMARY KEY (job, epoch)
  ) WITHOUT ROWID;
  INSERT INTO jobs VALUES (1, 'job-old', NULL, 'queued', 1700000000000000000, NULL, NULL,
                           '{"dataset":"zinc","epochs":3}', '{"step":7}', NULL, '', 0);
  INSERT INTO epochs VALUES (1, 1, '{"epoch":1}');
  PRAGMA user_version = 1;
)sql";

using JobSchemaTest = JobStoreTest;

TEST_F(JobSchemaTest, AFileOfVersion1IsBroughtUpToDateWithItsJobs) {
  {
    SQLite::Database old(path_.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    old.exec(kVersion1);
  }
  Job job;
  {
    const auto store = Open();
    auto found = store->Get(JobId("job-old"));
    ASSERT_TRUE(found.ok()) << found.status();
    job = *found;
    EXPECT_EQ(job.spec.train.epochs, 3);
    EXPECT_EQ(job.spec.train.graph_cache, spec::PolicyOptions());
    EXPECT_EQ(job.dataset_uid, "") << "its dataset is known by the times";
    EXPECT_EQ(job.epochs.size(), 1u);
    EXPECT_EQ(store->GetGraphCache(job.id).value(), std::nullopt);
    EXPECT_TRUE(store->PutGraphCache(job.id, {}, nullptr).ok());
    EXPECT_TRUE(store->PutCacheCommands(job.id, {{.sequence = 1}}, nullptr).ok());
  }
  EXPECT_EQ(SQLite::Database(path_.string()).execAndGet("PRAGMA user_version").getInt(), 6);
  EXPECT_EQ(Open()->GetCacheCommands(job.id).value().size(), 1u) << "and is of the newest version from then on";
}

TEST_F(JobSchemaTest, MetricsOfVersion2KeepTheirValuesUnderTheirNewNames) {
  // Contains 0.1 + 0.2, and the NaNs of a diverged run.
  constexpr char kVersion2[] = R"sql(
    CREATE TABLE graph_caches (
      job INTEGER PRIMARY KEY REFERENCES jobs (sequence) ON DELETE CASCADE,
      snapshot TEXT NOT NULL,
      entries TEXT NOT NULL
    );
    CREATE TABLE cache_commands (
      job INTEGER NOT NULL REFERENCES jobs (sequence) ON DELETE CASCADE,
      sequence INTEGER NOT NULL,
      command TEXT NOT NULL,
      PRIMARY KEY (job, sequence)
    ) WITHOUT ROWID;
    INSERT INTO epochs VALUES
      (1, 2, '{"epoch":2,"train_loss":0.5,"valid_loss":0.25,"valid_mae":0.30000000000000004}'),
      (1, 3, '{"epoch":3,"valid_loss":"nan","valid_mae":"nan"}');
    INSERT INTO jobs VALUES (2, 'job-done', NULL, 'succeeded', 1700000000000000000, NULL, NULL, '{"dataset":"zinc"}',
                             '{"step":7}', '{"best_epoch":2,"best_valid_mae":0.30000000000000004,"best_test_mae":0.4,'
                             || '"best_test_loss":0.5,"final_test_mae":0.6,"final_test_loss":0.7}', '', 0);
    PRAGMA user_version = 2;
  )sql";
  {
    SQLite::Database old(path_.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    old.exec(kVersion1);
    old.exec(kVersion2);
  }
  const auto store = Open();
  const auto old = store->Get(JobId("job-old"));
  ASSERT_TRUE(old.ok()) << old.status();
  ASSERT_EQ(old->epochs.size(), 3u);
  EXPECT_EQ(old->epochs[1].valid_metric, 0.1 + 0.2);
  EXPECT_EQ(old->epochs[1].train_loss, 0.5);
  EXPECT_TRUE(std::isnan(old->epochs[2].valid_metric));
  EXPECT_FALSE(old->result.has_value());
  const auto done = store->Get(JobId("job-done"));
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_TRUE(done->result.has_value());
  EXPECT_EQ(done->result->best_valid_metric, 0.1 + 0.2);
  EXPECT_EQ(done->result->best_test_metric, 0.4);
  EXPECT_EQ(done->result->best_test_loss, 0.5);
  EXPECT_EQ(done->result->final_test_metric, 0.6);
  EXPECT_EQ(done->result->final_test_loss, 0.7);
}

TEST_F(JobSchemaTest, JobsOfVersion3HaveNoLabelsAndCanBeGivenSome) {
  {
    SQLite::Database old(path_.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    old.exec(kVersion1);
    old.exec(
        "CREATE TABLE graph_caches (job INTEGER PRIMARY KEY, snapshot TEXT NOT NULL, entries TEXT NOT NULL);"
        "CREATE TABLE cache_commands (job INTEGER NOT NULL, sequence INTEGER NOT NULL, command TEXT NOT NULL);"
        "PRAGMA user_version = 3");
  }
  Job job;
  {
    const auto store = Open();
    auto found = store->Get(JobId("job-old"));
    ASSERT_TRUE(found.ok()) << found.status();
    job = *found;
    EXPECT_FALSE(job.unreadable) << job.error;
    EXPECT_TRUE(job.labels.empty());
    EXPECT_FALSE(job.pausing);
    EXPECT_EQ(job.history, StateHistory()) << "what came before is not known";
    EXPECT_EQ(job.failure, Failure());
    EXPECT_EQ(job.spec.limits, spec::JobLimits());
    job.labels = {{"team", "gnn"}};
    job.spec.priority = 9;
    EXPECT_TRUE(store->Describe(job).ok());
  }
  const auto back = Open()->Get(job.id);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->labels, job.labels);
  EXPECT_EQ(back->spec.priority, 9);
}

TEST_F(JobSchemaTest, AnUnknownSchemaIsRefused) {
  Open();
  SQLite::Database(path_.string(), SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 99");
  const auto store = JobStore::Open(path_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("99"));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path_.string()));
}

TEST_F(JobSchemaTest, WhatIsNoDatabaseIsDataLoss) {
  std::ofstream(path_) << std::string(4096, 'x');
  const auto store = JobStore::Open(path_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path_.string()));
}

class RequestRowsTest : public testing::Test {
 protected:
  static SQLite::Database Prepared(const std::filesystem::path& path) {
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    EXPECT_TRUE(PrepareDatabase(database).ok());
    return database;
  }
  bool Answered(const std::string& id) {
    const auto found = rows_.Find({.id = id, .what = "delete"});
    return found.ok() && found->has_value() && (*found)->answered;
  }
  void Put(const std::string& id, bool answered) {
    rows_.Put({.id = id, .what = "delete"}, {.answered = answered, .subject = ""});
  }

  const TempDir dir_;
  SQLite::Database database_ = Prepared(dir_.path() / "jobs.db");
  // One transaction for all calls, so that nothing is synced to disk.
  SQLite::Transaction transaction_{database_};
  RequestRows rows_{database_};
};

TEST_F(RequestRowsTest, EachCallTakesOnePlace) {
  Put("first", false);
  for (int64_t i = 1; i < JobStore::kMaxRequests; ++i) {
    std::string id = absl::StrCat("r", i);
    Put(id, false);
    if (i % 2 == 0) {  // the call is refused, and its client tries another one
      rows_.Drop(id);
      id += "b";
      Put(id, false);
    }
    Put(id, true);
  }
  Put("first", true);
  EXPECT_TRUE(Answered("first")) << "begun before all others, and answered after them";
  Put("last", true);
  EXPECT_FALSE(Answered("first"));
  EXPECT_TRUE(Answered("r1"));
}

TEST_F(RequestRowsTest, ACreationOutlivesTheCallsOfItsTimeOnceItsJobIsDeleted) {
  rows_.PutCreation("create", "all that was asked for", JobId("job-a"));
  rows_.PutCreation("other", "", JobId("job-b"));
  rows_.RenewCreation("create", JobId("job-a"));
  for (int64_t i = 1; i < JobStore::kMaxRequests; ++i) Put(absl::StrCat("r", i), true);
  EXPECT_FALSE(rows_.FindCreation("other")->has_value());
  const auto found = rows_.FindCreation("create");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->job, JobId("job-a"));
  EXPECT_EQ((*found)->asked, "all that was asked for");
  // This creation's row was dropped before its job was deleted.
  rows_.RenewCreation("other", JobId("job-b"));
  EXPECT_EQ(rows_.FindCreation("other")->value().asked, "");
}

TEST_F(RequestRowsTest, AnIdIsOfOneCall) {
  Put("one", true);
  rows_.PutCreation("create", "", JobId("job-a"));
  EXPECT_EQ(GetReason(rows_.FindCreation("one").status()).reason, "REQUEST_ID_REUSED");
  EXPECT_EQ(GetReason(rows_.Find({.id = "create", .what = "delete"}).status()).reason, "REQUEST_ID_REUSED");
  EXPECT_FALSE(rows_.FindCreation("")->has_value());
}

}  // namespace
}  // namespace permafrost::jobs
