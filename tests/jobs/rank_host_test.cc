// Tests ranks of other servers' jobs on this server's device, and jobs that wait for other servers.
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/hash.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using ::testing::HasSubstr;

class RankHostTest : public testing::Test {
 protected:
  void SetUp() override { server_->Start(); }
  RankRequest Request() {
    RankRequest request{.job = "theirs", .place = {.rank = 1, .leader_host = "lab-1", .rendezvous_port = 5}};
    request.options.dataset = DatasetId("zinc");
    request.options.replicas = 2;
    request.dataset_checksum = HashHex(data::ContentChecksumOf(*server_.catalog().Open(DatasetId("zinc"))));
    return request;
  }
  // Runs the rank once the device waits for a job.
  absl::Status Run(const RankRequest& request) {
    absl::Status ran;
    for (const Stopwatch waited; waited.Elapsed() < absl::Seconds(60); absl::SleepFor(absl::Milliseconds(1))) {
      ran = server_->RunRank(request, [](const train::RankProgress& /*progress*/) { return true; });
      if (GetReason(ran).reason != "DEVICE_BUSY") break;
    }
    return ran;
  }

  const TempDir dir_;
  Server server_{dir_.path()};
};

TEST_F(RankHostTest, ARankHasTheDeviceUntilItEnds) {
  absl::Notification begun, end;
  train::RunRequest seen;
  server_.runner().SetScript([&](const train::RunRequest& request, train::RunContext& context) {
    if (!request.place) return absl::StatusOr<train::RunOutcome>(train::RunOutcome{.result = train::RunResult()});
    seen = request;
    context.OnProgress({.step = 7});
    context.OnProgress({.step = 9});
    begun.Notify();
    end.WaitForNotification();
    return absl::StatusOr<train::RunOutcome>(train::RunOutcome());
  });
  absl::Status ran = absl::UnknownError("");
  std::thread rank([&] { ran = Run(Request()); });
  begun.WaitForNotification();
  EXPECT_EQ(seen.place->rank, 1);
  EXPECT_EQ(seen.place->leader_host, "lab-1");
  EXPECT_TRUE(seen.job_directory.empty()) << "it keeps nothing here";
  const absl::Status second = server_->RunRank(Request(), [](const train::RankProgress& /*progress*/) { return true; });
  EXPECT_EQ(GetReason(second).reason, "DEVICE_BUSY") << second;
  server_.Create("own");
  EXPECT_EQ(server_->Get(JobId("own"))->state, JobState::kQueued);
  end.Notify();
  rank.join();
  EXPECT_EQ(ran, absl::OkStatus());
  EXPECT_EQ(server_.AwaitEnd("own").state, JobState::kSucceeded);
}

TEST_F(RankHostTest, AQuestionTakesNothing) {
  server_.runner().SetScript([&](const train::RunRequest& request, train::RunContext& /*context*/) {
    return absl::StatusOr<train::RunOutcome>(request.place ? train::RunOutcome()
                                                           : train::RunOutcome{.result = train::RunResult()});
  });
  RankRequest question = Request();
  question.validate_only = true;
  const auto ask = [&] {
    return server_->RunRank(question, [](const train::RankProgress& /*progress*/) {
      ADD_FAILURE() << "nothing runs";
      return true;
    });
  };
  ASSERT_EQ(Run(Request()), absl::OkStatus()) << "the device waits for a job";
  absl::Status answer = ask();
  // The device may take a moment to wait again.
  for (const Stopwatch waited; !answer.ok() && waited.Elapsed() < absl::Seconds(60);) answer = ask();
  EXPECT_EQ(answer, absl::OkStatus());
  const std::string checksum = std::exchange(question.dataset_checksum, "0123456789abcdef");
  EXPECT_EQ(GetReason(ask()).reason, "DATASET_DIFFERS");
  question.dataset_checksum = checksum;
  absl::Notification begun, end;
  server_.runner().SetScript([&](const train::RunRequest& /*request*/, train::RunContext& /*context*/) {
    begun.Notify();
    end.WaitForNotification();
    return absl::StatusOr<train::RunOutcome>(train::RunOutcome());
  });
  std::thread rank([&] { EXPECT_EQ(Run(Request()), absl::OkStatus()); });
  begun.WaitForNotification();
  EXPECT_EQ(GetReason(ask()).reason, "DEVICE_BUSY");
  end.Notify();
  rank.join();
}

TEST_F(RankHostTest, AJobOnTheDeviceComesFirst) {
  server_.runner().Hold();
  server_.Create("own");
  server_.runner().AwaitHeld();
  const absl::Status refused =
      server_->RunRank(Request(), [](const train::RankProgress& /*progress*/) { return true; });
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_EQ(GetReason(refused).reason, "DEVICE_BUSY");
  server_.runner().Release();
}

TEST_F(RankHostTest, WhatCannotBeTrainedHereIsSaidBeforeTheDeviceTakesIt) {
  RankRequest other = Request();
  other.dataset_checksum = "0123456789abcdef";
  EXPECT_EQ(GetReason(Run(other)).reason, "DATASET_DIFFERS");
  other = Request();
  other.options.dataset = DatasetId("nowhere");
  EXPECT_EQ(Run(other).message(), "dataset nowhere is not here");
  EXPECT_EQ(GetReason(Run(other)).reason, train::kDatasetMissingReason);
  other = Request();
  other.place.rank = 2;
  EXPECT_EQ(GetViolations(Run(other))[0].description, "2: the job has 2 replicas; accepted: 1 to 1");
  server_.runner().SetCompatible(absl::InvalidArgumentError("no such instruction"));
  EXPECT_EQ(Run(Request()), absl::InvalidArgumentError("no such instruction"));
  EXPECT_TRUE(server_.runner().runs().empty());
}

TEST_F(RankHostTest, ErrorsOfTheJobAreToldApartFromThoseOfTheMachine) {
  absl::Status end;
  server_.runner().SetScript(
      [&](const train::RunRequest&, train::RunContext&) -> absl::StatusOr<train::RunOutcome> { return end; });
  end = absl::InternalError("label 7 is none of the classes");
  const absl::Status failed = Run(Request());
  EXPECT_TRUE(absl::IsFailedPrecondition(failed)) << failed;
  EXPECT_EQ(GetReason(failed).reason, train::kRankFailedReason);
  end = absl::DataLossError("a block is damaged");
  EXPECT_EQ(Run(Request()), end);
  end = absl::InvalidArgumentError("the batch takes more memory than there is");
  EXPECT_EQ(Run(Request()), end);
  end = AsTransient(absl::UnavailableError("rank 0 has gone"));
  EXPECT_TRUE(absl::IsUnavailable(Run(Request())));
}

TEST_F(RankHostTest, ALeaderThatHasGoneEndsItsRank) {
  server_.runner().SetScript(
      [](const train::RunRequest&, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
        const Stopwatch waited;
        while (context.stop_requested() == train::StopRequest::kNone && waited.Elapsed() < absl::Seconds(60)) {
          absl::SleepFor(absl::Milliseconds(5));
        }
        return train::RunOutcome{.end = train::RunEnd::kCancelled};
      });
  int asked = 0;
  absl::Status ran;
  for (const Stopwatch waited; waited.Elapsed() < absl::Seconds(60);) {
    ran = server_->RunRank(Request(), [&](const train::RankProgress& /*progress*/) { return ++asked < 3; });
    if (GetReason(ran).reason != "DEVICE_BUSY") break;
  }
  EXPECT_EQ(ran, absl::OkStatus());
  EXPECT_EQ(asked, 3);
}

TEST_F(RankHostTest, AJobThatWaitsForPeersIsNoRetry) {
  server_.runner().SetScript([](const train::RunRequest&, train::RunContext&) -> absl::StatusOr<train::RunOutcome> {
    return AsTransient(WithReason(absl::UnavailableError("lab-2: the device is not idle"), train::kTooFewPeersReason));
  });
  CreateRequest request = server_.Request("waits");
  request.spec.max_retries = 1;
  ASSERT_TRUE(server_->Create(request).ok());
  server_.runner().AwaitRuns(1);
  for (const Stopwatch waited; waited.Elapsed() < absl::Seconds(60); absl::SleepFor(absl::Milliseconds(5))) {
    if (server_->Get(JobId("waits"))->trouble.runs > 0) break;
  }
  const absl::StatusOr<Job> job = server_->Get(JobId("waits"));
  EXPECT_EQ(job->state, JobState::kQueued);
  EXPECT_EQ(job->history.changes.back().reason, "TOO_FEW_PEERS");
  EXPECT_THAT(job->trouble.error, HasSubstr("the device is not idle"));
  EXPECT_GT(job->trouble.retry_time, absl::Now());
}

}  // namespace
}  // namespace permafrost::jobs
