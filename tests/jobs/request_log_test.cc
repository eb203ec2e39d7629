#include "jobs/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using Seen = Earlier::Seen;

class RequestLogTest : public testing::Test {
 protected:
  void SetUp() override { Restart(); }
  // Starts anew as after SIGKILL, with only what is on disk.
  void Restart() {
    log_.reset();
    store_.reset();
    store_ = *JobStore::Open(dir_.path() / "jobs.db");
    log_ = std::make_unique<RequestLog>(*store_);
  }
  // Does a call, and records what it finds of earlier calls.
  absl::Status Do(const RequestKey& key, const std::string& subject = "", absl::Status outcome = absl::OkStatus()) {
    return log_->Once(key, subject, [&](const Earlier& earlier) {
      seen_.push_back(earlier.seen);
      subjects_.push_back(earlier.subject);
      return outcome;
    });
  }

  const TempDir dir_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<RequestLog> log_;
  std::vector<Seen> seen_;
  std::vector<std::string> subjects_;
};

TEST_F(RequestLogTest, ACallThatComesAgainFindsThatItWasAnswered) {
  const RequestKey key{.id = "one", .what = "delete zinc"};
  EXPECT_TRUE(Do(key, "at 5").ok());
  EXPECT_TRUE(Do(key, "at 7").ok());
  Restart();
  EXPECT_TRUE(Do(key).ok());
  EXPECT_THAT(seen_, testing::ElementsAre(Seen::kNever, Seen::kAnswered, Seen::kAnswered));
  EXPECT_THAT(subjects_, testing::ElementsAre("at 5", "at 5", "at 5")) << "what it was about when it came first";
}

TEST_F(RequestLogTest, ADeathInTheMidstIsSeenByTheNextProcess) {
  const RequestKey key{.id = "one", .what = "delete zinc"};
  // While the body runs, the record is on disk as begun.
  EXPECT_TRUE(log_->Once(key, "at 5",
                         [&](const Earlier&) {
                           const auto found = store_->FindRequest(key);
                           EXPECT_TRUE(found.ok() && found->has_value() && !(*found)->answered);
                           return absl::OkStatus();
                         })
                  .ok());
  ASSERT_TRUE(store_->PutRequest(key, {.answered = false, .subject = "at 5"}).ok());
  Restart();
  EXPECT_TRUE(Do(key, "at 9").ok());
  EXPECT_TRUE(Do(key).ok());
  EXPECT_THAT(seen_, testing::ElementsAre(Seen::kBegun, Seen::kAnswered));
  EXPECT_EQ(subjects_.front(), "at 5");
}

TEST_F(RequestLogTest, ACallThatWasRefusedMayComeAgain) {
  const RequestKey key{.id = "one", .what = "delete zinc"};
  EXPECT_EQ(Do(key, "", absl::FailedPreconditionError("in use")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Do(key).ok());
  EXPECT_THAT(seen_, testing::ElementsAre(Seen::kNever, Seen::kNever));
}

// Otherwise a token that the dead process made would be made a second time.
TEST_F(RequestLogTest, WhatADeadProcessBeganStaysBegunWhenItsRepeatFails) {
  const RequestKey key{.id = "one", .what = "create token"};
  ASSERT_TRUE(store_->PutRequest(key, {.answered = false, .subject = "at 5"}).ok());
  EXPECT_EQ(Do(key, "at 7", absl::ResourceExhaustedError("no space left")).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Do(key, "at 9").ok());
  EXPECT_TRUE(Do(key).ok());
  EXPECT_THAT(seen_, testing::ElementsAre(Seen::kBegun, Seen::kBegun, Seen::kAnswered));
  EXPECT_THAT(subjects_, testing::Each("at 5"));
}

TEST_F(RequestLogTest, AnIdIsOfOneCallAndWellFormed) {
  EXPECT_TRUE(Do({.id = "one", .what = "delete zinc"}).ok());
  EXPECT_EQ(ReasonOf(Do({.id = "one", .what = "delete qm9"})), "REQUEST_ID_REUSED");
  EXPECT_THAT(FieldsOf(Do({.id = std::string(129, 'x'), .what = "delete qm9"})), testing::ElementsAre("request_id"));
  EXPECT_TRUE(Do({}).ok());
  EXPECT_TRUE(Do({}).ok());
  EXPECT_THAT(seen_, testing::ElementsAre(Seen::kNever, Seen::kNever, Seen::kNever)) << "without an id";
}

TEST_F(RequestLogTest, TheSameCallAtTheSameTimeIsAskedToComeAgain) {
  const RequestKey key{.id = "one", .what = "delete zinc"};
  absl::Notification began, may_end;
  std::thread first([&] {
    EXPECT_TRUE(log_->Once(key, "",
                           [&](const Earlier&) {
                             began.Notify();
                             may_end.WaitForNotification();
                             return absl::OkStatus();
                           })
                    .ok());
  });
  began.WaitForNotification();
  const absl::Status second = Do(key);
  may_end.Notify();
  first.join();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(second), "REQUEST_UNDER_WAY");
  EXPECT_TRUE(seen_.empty());
  EXPECT_TRUE(Do(key).ok());
  EXPECT_THAT(seen_, testing::ElementsAre(Seen::kAnswered));
}

}  // namespace
}  // namespace permafrost::jobs
