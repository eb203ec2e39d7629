// Tests how a database is treated before it is used: it is checked, and copied before a migration.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "jobs/job_store.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string BytesOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class DatabaseCareTest : public testing::Test {
 protected:
  // Writes a database of the previous version that holds a job.
  void MakeOld() const {
    SQLite::Database old(path_.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    old.exec(R"sql(
      CREATE TABLE jobs (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, request_id TEXT UNIQUE,
                         state TEXT NOT NULL, create_time INTEGER NOT NULL, start_time INTEGER, end_time INTEGER,
                         spec TEXT NOT NULL, progress TEXT NOT NULL, result TEXT, error TEXT NOT NULL,
                         resumes INTEGER NOT NULL);
      CREATE INDEX jobs_by_state ON jobs (state, sequence);
      CREATE TABLE epochs (job INTEGER NOT NULL REFERENCES jobs (sequence) ON DELETE CASCADE, epoch INTEGER NOT NULL,
                           metrics TEXT NOT NULL, PRIMARY KEY (job, epoch)) WITHOUT ROWID;
      CREATE TABLE graph_caches (job INTEGER PRIMARY KEY REFERENCES jobs (sequence) ON DELETE CASCADE,
                                 snapshot TEXT NOT NULL, entries TEXT NOT NULL);
      CREATE TABLE cache_commands (job INTEGER NOT NULL REFERENCES jobs (sequence) ON DELETE CASCADE,
                                   sequence INTEGER NOT NULL, command TEXT NOT NULL, PRIMARY KEY (job, sequence))
        WITHOUT ROWID;
      INSERT INTO jobs (id, state, create_time, spec, progress, error, resumes)
        VALUES ('kept', 'failed', 1, '{}', '{}', 'why', 0);
      PRAGMA user_version = 3;
    )sql");
  }
  static int VersionOf(const fs::path& path) {
    return SQLite::Database(path.string()).execAndGet("PRAGMA user_version").getInt();
  }

  const TempDir dir_;
  const fs::path path_ = dir_.path() / "permafrost.db";
  const fs::path copy_ = dir_.path() / "permafrost.db.v3-backup";
};

TEST_F(DatabaseCareTest, AnOlderSchemaIsKeptBesideBeforeItIsMigrated) {
  MakeOld();
  ASSERT_TRUE(JobStore::Open(path_).ok());
  EXPECT_GT(VersionOf(path_), 3);
  EXPECT_EQ(VersionOf(copy_), 3);
  EXPECT_EQ(SQLite::Database(copy_.string()).execAndGet("SELECT error FROM jobs WHERE id = 'kept'").getString(), "why");
  // A second open migrates nothing, and so makes no copy.
  ASSERT_TRUE(JobStore::Open(path_).ok());
  EXPECT_FALSE(fs::exists(copy_.string() + "-2"));
}

TEST_F(DatabaseCareTest, ACopyIsNeverWrittenOver) {
  MakeOld();
  std::ofstream(copy_) << "another's";
  ASSERT_TRUE(JobStore::Open(path_).ok());
  EXPECT_EQ(BytesOf(copy_), "another's");
  EXPECT_EQ(VersionOf(copy_.string() + "-2"), 3);
}

TEST_F(DatabaseCareTest, WhereNoCopyCanBeMadeNothingIsMigrated) {
  MakeOld();
  // This directory has the copy's temporary name, and cannot be removed as a file.
  fs::create_directories(dir_.path() / "permafrost.db.tmp-backup");
  fs::permissions(dir_.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const auto store = JobStore::Open(path_);
  fs::permissions(dir_.path(), fs::perms::owner_all);
  if (store.ok()) GTEST_SKIP() << "this user may write everywhere";
  EXPECT_EQ(VersionOf(path_), 3);
}

TEST_F(DatabaseCareTest, ANewFileIsNotCopied) {
  ASSERT_TRUE(JobStore::Open(path_).ok());
  for (const auto& entry : fs::directory_iterator(dir_.path())) {
    EXPECT_EQ(entry.path().filename().string().find("backup"), std::string::npos) << entry.path();
  }
}

TEST_F(DatabaseCareTest, ADamagedPageIsRefusedAndNothingIsChanged) {
  MakeOld();
  {
    // Adds enough rows to fill more than the first page.
    SQLite::Database old(path_.string(), SQLite::OPEN_READWRITE);
    for (int i = 0; i < 200; ++i) {
      old.exec("INSERT INTO jobs (id, state, create_time, spec, progress, error, resumes) VALUES ('j" +
               std::to_string(i) + "', 'failed', 1, '" + std::string(500, '{') + "', '{}', '', 0)");
    }
  }
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 * 8);
    file << std::string(4096, '\x55');
  }
  std::ofstream(dir_.path() / "permafrost.db.v2-backup") << "older";
  const std::string before = BytesOf(path_);
  const auto store = JobStore::Open(path_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("is damaged"));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("permafrost.db.v2-backup"));
  EXPECT_EQ(BytesOf(path_), before);
}

}  // namespace
}  // namespace permafrost::jobs
