#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cerrno>

#include "absl/time/clock.h"
#include "base/id.h"
#include "file_size_limit.h"
#include "jobs/job_database.h"
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

TEST(JobStoreErrors, AFileThatCannotBeOpenedForWantOfSomethingIsOnlyUnavailable) {
  const SQLite::Exception cannot("unable to open database file", SQLITE_CANTOPEN);
  for (const int error : {EMFILE, ENFILE, ENOMEM, EACCES}) {
    EXPECT_TRUE(absl::IsUnavailable(ToStatus("db", cannot, error))) << error;
  }
  for (const int error : {0, ENOENT, EISDIR}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(ToStatus("db", cannot, error))) << error;
  }
}

TEST(JobStoreErrors, AnErrorOfALockOrOfSharedMemoryIsNotToldAsAnOlderOneOfTheFile) {
  const struct {
    const char* why;
    int code;
    bool of_file_bytes;
  } kCases[] = {
      {"a read", SQLITE_IOERR_READ, true},
      {"a read that the disk failed", SQLITE_IOERR_CORRUPTFS, true},
      {"a write", SQLITE_IOERR_WRITE, true},
      {"a sync", SQLITE_IOERR_FSYNC, true},
      {"a truncation", SQLITE_IOERR_TRUNCATE, true},
      {"the end of a file, where the system reports no error", SQLITE_IOERR_SHORT_READ, false},
      {"a lock", SQLITE_IOERR_LOCK, false},
      {"an unlock", SQLITE_IOERR_UNLOCK, false},
      {"a lock in shared memory", SQLITE_IOERR_SHMLOCK, false},
      {"shared memory that cannot be mapped", SQLITE_IOERR_SHMMAP, false},
      {"shared memory that cannot grow", SQLITE_IOERR_SHMSIZE, false},
      {"memory", SQLITE_IOERR_NOMEM, false},
      {"an error of no I/O", SQLITE_CONSTRAINT, false},
  };
  for (const auto& c : kCases) {
    const SQLite::Exception error("disk I/O error", c.code);
    EXPECT_EQ(IsOfFileBytes(error), c.of_file_bytes) << c.why;
    EXPECT_EQ(ToStatus("db", error, EROFS).message(),
              c.of_file_bytes ? "db: disk I/O error: Read-only file system" : "db: disk I/O error")
        << c.why;
    EXPECT_EQ(absl::IsUnavailable(ToStatus("db", error, EROFS)), c.of_file_bytes) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::jobs
