// Tests plans over a real channel.
#include <gmock/gmock.h>

#include "api/wire/convert_graph_cache.h"
#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

graphcache::CachePlan SamplePlan() {
  graphcache::CachePlan plan{
      .options = {.freeze_at = 5},
      .no_dynamic_reason = "mps records no steps",
      .schedules = {{.batching = "random",
                     .max_nodes = 800,
                     .max_edges = 1700,
                     .train = {{.shape = {11, 20, 5}, .batches = 6, .real_rows = 180, .dynamic_rows = 186}},
                     .first_epoch_shapes = 1,
                     .epochs = 2,
                     .sampled_batches = 12,
                     .sampled_shapes = 7,
                     .rungs = {{11, 20, 5}},
                     .cut = true,
                     .ceiling = {11, 20, 5},
                     .eval_rungs = {{11, 20, 5}},
                     .eval_shapes = 1}}};
  plan.freeze_point = {.freeze_at = 5, .source = graphcache::FreezeSource::kExplicit};
  plan.costs = graphcache::StepCosts{.replay = {.fixed = 1, .per_row = 2}, .padding_row = 3, .capture = 4};
  FillRows(plan);
  return plan;
}

TEST(ConvertPlanTest, EverythingIsTold) {
  const graphcache::CachePlan plan = SamplePlan();
  const v1::PlanGraphCacheResponse wire = CachePlanToWire(plan);
  ASSERT_EQ(wire.schedules_size(), 1);
  EXPECT_EQ(wire.schedules(0).batches(), 6);
  EXPECT_EQ(wire.schedules(0).shapes(), 1);
  EXPECT_TRUE(wire.schedules(0).cut());
  EXPECT_EQ(wire.schedules(0).sampled_batches(), 12);
  EXPECT_EQ(wire.schedules(0).sampled_shapes(), 7);
  EXPECT_EQ(wire.schedules(0).rungs(), 1);
  EXPECT_EQ(wire.schedules(0).max_nodes(), 800);
  EXPECT_EQ(wire.schedules(0).max_edges(), 1700);
  EXPECT_EQ(wire.schedules(0).ceiling().nodes(), 11);
  ASSERT_EQ(wire.rows_size(), std::ssize(plan.rows));
  EXPECT_EQ(wire.rows(0).policy().freeze_at(), 5);
  EXPECT_EQ(wire.rows(0).policy().shapes(), v1::GraphCachePolicy::SHAPES_AUTO);
  EXPECT_EQ(wire.rows(0).shapes(), v1::GraphCachePolicy::SHAPES_LADDER) << "there are no dynamic executables";
  EXPECT_EQ(wire.rows(0).replayed_steps(), plan.rows[0].replayed);
  EXPECT_EQ(wire.rows(0).bytes(), *plan.rows[0].bytes);
  EXPECT_EQ(wire.freeze_at(), 5);
  EXPECT_EQ(wire.freeze_point_source(), v1::FREEZE_POINT_SOURCE_EXPLICIT);
  EXPECT_EQ(wire.no_dynamic_reason(), "mps records no steps");
  EXPECT_EQ(wire.recommendation(), plan.reason);
  EXPECT_EQ(wire.costs().replay_seconds_per_padding_row(), 3);
  EXPECT_EQ(wire.costs().capture_seconds(), 4);
}

TEST(ConvertPlanTest, WhatWasNotMeasuredIsAbsent) {
  graphcache::CachePlan plan = SamplePlan();
  plan.costs.reset();
  plan.no_costs_reason = "a job runs";
  plan.rows.clear();
  FillRows(plan);
  const v1::PlanGraphCacheResponse wire = CachePlanToWire(plan);
  EXPECT_FALSE(wire.has_costs());
  EXPECT_EQ(wire.no_costs_reason(), "a job runs");
  EXPECT_FALSE(wire.rows(0).has_bytes());
  EXPECT_FALSE(wire.rows(0).has_train_seconds());
}

TEST_F(ServerTest, APlanIsMadeOfAJobsSpec) {
  jobs_.runner().SetPlan(SamplePlan());
  v1::PlanGraphCacheRequest request;
  request.mutable_spec()->set_dataset("datasets/zinc");
  request.mutable_spec()->set_epochs(3);
  request.set_without_costs(true);
  grpc::ClientContext context;
  v1::PlanGraphCacheResponse response;
  const grpc::Status status = v1::PlanService::NewStub(channel_)->PlanGraphCache(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.schedules_size(), 1);
  EXPECT_EQ(jobs_.runner().planned().back().epochs, 3);
  EXPECT_EQ(jobs_.runner().planned().back().batch_size, 32) << "defaults are filled in";
  EXPECT_EQ(response.no_costs_reason(), "it was not asked for") << "nothing was measured";
}

TEST_F(ServerTest, APlanOfABadSpecNamesTheFields) {
  v1::PlanGraphCacheRequest request;
  grpc::ClientContext context;
  v1::PlanGraphCacheResponse response;
  grpc::Status status = v1::PlanService::NewStub(channel_)->PlanGraphCache(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "spec");
  request.mutable_spec()->set_dataset("zinc");
  grpc::ClientContext second;
  status = v1::PlanService::NewStub(channel_)->PlanGraphCache(&second, request, &response);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "spec.dataset");
}

}  // namespace
}  // namespace permafrost::api
