#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include "base/id.h"
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

}  // namespace
}  // namespace permafrost::jobs
