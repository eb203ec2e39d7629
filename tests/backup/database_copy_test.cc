// Tests copies of a database in a daemon that has no file descriptors left.
#include "backup/copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "jobs/job_store.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::backup {
namespace {

TEST(DatabaseCopyTest, WithoutDescriptorsTheDatabaseIsOnlyUnavailable) {
  const TempDir dir;
  const auto database = dir.path() / "permafrost.db";
  const auto store = jobs::JobStore::Open(database);
  ASSERT_TRUE(store.ok()) << store.status();
  jobs::Job job;
  job.id = JobId("a");
  job.spec.train.dataset = DatasetId("zinc");
  job.create_time = absl::Now();
  ASSERT_TRUE((*store)->Insert(job).ok());
  // With 0, no descriptor is left for the database. With 1, the database gets it, and its write-ahead log gets none.
  for (const int left : {0, 1}) {
    absl::Status read;
    {
      const NoDescriptors exhausted(left);
      read = ReadJobRows(database).status();
    }
    EXPECT_TRUE(absl::IsUnavailable(read)) << left << ": " << read;
    EXPECT_THAT(std::string(read.message()), testing::EndsWith("Too many open files")) << left;
  }
  const auto rows = ReadJobRows(database);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadJobRows(dir.path() / "none.db").status()));
}

}  // namespace
}  // namespace permafrost::backup
