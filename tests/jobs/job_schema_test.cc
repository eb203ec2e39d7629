// Databases of other versions, and files that are none.
#include "jobs/job_database.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "jobs/store_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

// The database that the first release wrote: its schema, and a job with an epoch.
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
  // 0.1 + 0.2, and what a diverged run leaves.
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

}  // namespace
}  // namespace permafrost::jobs
