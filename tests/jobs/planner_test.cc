// Tests plans beside jobs: measured on an idle device, and made without the device beside a running job.
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using ::testing::HasSubstr;

class PlannerTest : public testing::Test {
 protected:
  static spec::JobSpec Spec() { return Server::Request("planned").spec; }
  absl::StatusOr<graphcache::CachePlan> Plan(bool measure) { return server_->PlanGraphCache(Spec(), measure, wanted_); }
  // Repeats the plan until the device thread waits for jobs and can measure.
  graphcache::CachePlan AwaitMeasured() {
    while (true) {
      absl::StatusOr<graphcache::CachePlan> plan = Plan(/*measure=*/true);
      EXPECT_EQ(plan.status(), absl::OkStatus());
      if (!plan.ok() || plan->costs) return plan.value_or(graphcache::CachePlan());
    }
  }

  std::function<bool()> wanted_ = [] { return true; };
  TempDir directory_;
  Server server_{directory_.path()};
};

TEST_F(PlannerTest, AnIdleDeviceMeasures) {
  server_->Start();
  const graphcache::CachePlan plan = AwaitMeasured();
  EXPECT_EQ(plan.costs->capture, 0.25);
  EXPECT_EQ(plan.no_costs_reason, "");
  EXPECT_THAT(server_.runner().runs(), testing::IsEmpty()) << "no job was made";
  EXPECT_EQ(server_->List(10, "", {})->jobs.size(), 0u);
}

TEST_F(PlannerTest, WhatWasNotAskedForIsNotMeasured) {
  server_->Start();
  AwaitMeasured();
  const absl::StatusOr<graphcache::CachePlan> plan = Plan(/*measure=*/false);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_FALSE(plan->costs.has_value());
  EXPECT_EQ(plan->no_costs_reason, "it was not asked for");
}

TEST_F(PlannerTest, ARunningJobKeepsTheDevice) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a");
  server_.runner().AwaitHeld();
  const absl::StatusOr<graphcache::CachePlan> plan = Plan(/*measure=*/true);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_FALSE(plan->costs.has_value());
  EXPECT_THAT(plan->no_costs_reason, HasSubstr("a job runs"));
  server_.runner().Release();
  server_.AwaitEnd("job-a");
  EXPECT_TRUE(AwaitMeasured().costs.has_value()) << "once it has ended";
}

TEST_F(PlannerTest, PlansAndJobsTakeTurns) {
  server_->Start();
  for (int i = 0; i < 20; ++i) {
    server_.Create(absl::StrCat("job-", i), /*epochs=*/1);
    EXPECT_EQ(Plan(/*measure=*/true).status(), absl::OkStatus());
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(server_.AwaitEnd(absl::StrCat("job-", i)).state, JobState::kSucceeded);
}

TEST_F(PlannerTest, ADrainEndsAPlanAsItRefusesOne) {
  server_->Start();
  AwaitMeasured();
  server_.runner().SetOnPlan([this] { server_->Drain(); });
  EXPECT_TRUE(absl::IsUnavailable(Plan(/*measure=*/true).status()));
}

TEST_F(PlannerTest, ACensusIsTakenBesideARunningJobButOfTheDeviceOnMps) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a");
  server_.runner().AwaitHeld();
  const auto take = [this] { return server_->TakeGraphCacheCensus(Spec(), graphcache::TorchRelease::k2_15, wanted_); };
  const auto census = take();
  ASSERT_EQ(census.status(), absl::OkStatus());
  EXPECT_EQ(census->release, graphcache::TorchRelease::k2_15);
  server_.runner().SetDevice(DeviceKind::kMps);
  EXPECT_TRUE(absl::IsUnavailable(take().status())) << "its steps would run beside the job's";
  server_.runner().Release();
  server_.AwaitEnd("job-a");
  while (!take().ok()) {
  }
}

TEST_F(PlannerTest, ADrainEndsACensus) {
  server_->Start();
  server_.runner().SetOnPlan([this] { server_->Drain(); });
  EXPECT_TRUE(
      absl::IsUnavailable(server_->TakeGraphCacheCensus(Spec(), graphcache::TorchRelease::k2_13, wanted_).status()));
}

TEST_F(PlannerTest, WhatNobodyWaitsForIsGivenUp) {
  server_->Start();
  AwaitMeasured();
  bool wanted = true;
  wanted_ = [&wanted] { return wanted; };
  server_.runner().SetOnPlan([&wanted] { wanted = false; });
  for (const bool measure : {true, false}) {
    wanted = true;
    EXPECT_TRUE(absl::IsCancelled(Plan(measure).status())) << measure;
  }
  wanted = true;
  EXPECT_TRUE(
      absl::IsCancelled(server_->TakeGraphCacheCensus(Spec(), graphcache::TorchRelease::k2_13, wanted_).status()));
}

TEST_F(PlannerTest, RefusesWhatCreateRefuses) {
  spec::JobSpec spec = Spec();
  spec.train.dataset = DatasetId("none");
  EXPECT_TRUE(absl::IsNotFound(server_->PlanGraphCache(spec, true, wanted_).status()));
  EXPECT_TRUE(absl::IsNotFound(server_->TakeGraphCacheCensus(spec, graphcache::TorchRelease::k2_13, wanted_).status()));
  spec = Spec();
  spec.train.epochs = 0;
  EXPECT_THAT(std::string(server_->PlanGraphCache(spec, true, wanted_).status().message()), HasSubstr("spec.epochs"));
  server_->Drain();
  EXPECT_TRUE(absl::IsUnavailable(Plan(/*measure=*/false).status()));
}

}  // namespace
}  // namespace permafrost::jobs
