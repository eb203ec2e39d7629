#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cerrno>

#include "absl/time/clock.h"
#include "base/id.h"
#include "file_size_limit.h"
#include "jobs/job_schema.h"
#include "jobs/job_store.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

TEST(JobStoreErrors, StatementsThatCannotBeExecutedAreTold) {
  const TempDir dir;
  const auto path = dir.path() / "permafrost.db";
  int told = 0;
  const auto store = JobStore::Open(path, [&told] { ++told; });
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE(absl::IsNotFound((*store)->Get(JobId("nobody")).status()));
  EXPECT_EQ(told, 0) << "an answer is no error";
  SQLite::Database(path.string(), SQLite::OPEN_READWRITE).exec("DROP TABLE jobs");
  EXPECT_FALSE((*store)->Get(JobId("nobody")).ok());
  EXPECT_EQ(told, 1);
}

TEST(JobStoreErrors, AnIoErrorSaysWhatTheSystemSaid) {
  const TempDir dir;
  const auto store = JobStore::Open(dir.path() / "permafrost.db");
  ASSERT_TRUE(store.ok()) << store.status();
  Job job;
  job.id = JobId("a");
  job.spec.train.dataset = DatasetId("zinc");
  job.create_time = absl::Now();
  {
    const FileSizeLimit nothing(1);
    EXPECT_THAT(std::string((*store)->Insert(job).message()),
                testing::EndsWith("permafrost.db: disk I/O error: File too large"));
  }
  EXPECT_TRUE((*store)->Insert(job).ok());
}

TEST(JobStoreErrors, WhereNothingMayBeWrittenTheStoreIsUnavailable) {
  const SQLite::Exception io("disk I/O error", SQLITE_IOERR_WRITE), full("full", SQLITE_FULL);
  EXPECT_EQ(ToStatus("db", io, EROFS), absl::UnavailableError("db: disk I/O error: Read-only file system"));
  EXPECT_EQ(ToStatus("db", io, EIO), absl::InternalError("db: disk I/O error: Input/output error"));
  EXPECT_EQ(ToStatus("db", io), absl::InternalError("db: disk I/O error"));
  EXPECT_EQ(ToStatus("db", full, EROFS), absl::ResourceExhaustedError("db: full")) << "an errno of another call";
}

}  // namespace
}  // namespace permafrost::jobs
