#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "jobs/job_database.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

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
  // One for all: nothing is brought to disk.
  SQLite::Transaction transaction_{database_};
  RequestRows rows_{database_};
};

TEST_F(RequestRowsTest, EachCallTakesOnePlace) {
  Put("first", false);
  for (int64_t i = 1; i < JobStore::kMaxRequests; ++i) {
    std::string id = absl::StrCat("r", i);
    Put(id, false);
    if (i % 2 == 0) {  // refused; its client tries another one
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
  // One that had gone by the time that its job was deleted.
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
