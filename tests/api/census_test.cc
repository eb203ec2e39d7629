// Tests censuses over a real channel.
#include <gmock/gmock.h>

#include "api/wire/convert_graph_cache.h"
#include "google/rpc/error_details.pb.h"
#include "permafrost/v1/census.grpc.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

graphcache::Census SampleCensus() {
  graphcache::LoweringCensus plain{.lowering = "plain"};
  plain.modes[0] = {.operators = 40, .ops = {{"aten::mm", 9, 90, 900}}, .all = {"", 9, 90, 900}};
  plain.modes[1] = {.operators = 20, .ops = {}, .all = {"", 1, 2, 3}};
  plain.rows = {{.options = {.policy = spec::Policy::kAlways},
                 .shapes = spec::Shapes::kExact,
                 .train_shapes = 11,
                 .eval_shapes = 12,
                 .shape = 13,
                 .epoch = 14,
                 .run = 15,
                 .compiled = 16}};
  plain.unknown = {"aten::new_one"};
  return {.lowerings = {plain, {.lowering = "shape-free"}},
          .schedule = {.batching = "random", .epochs = 7},
          .freeze_at = 97,
          .measured_entries = 123};
}

TEST(ConvertCensusTest, EverythingIsTold) {
  const v1::CensusGraphCacheResponse wire = CensusToWire(SampleCensus());
  EXPECT_EQ(wire.torch_release(), "2.13");
  EXPECT_EQ(wire.schedule().epochs(), 7);
  EXPECT_EQ(wire.freeze_at(), 97);
  EXPECT_EQ(wire.measured_entries(), 123);
  ASSERT_EQ(wire.lowerings_size(), 2);
  EXPECT_EQ(wire.lowerings(1).lowering(), v1::ModelSpec::LOWERING_SHAPE_FREE);
  const v1::LoweringCensus& plain = wire.lowerings(0);
  EXPECT_EQ(plain.lowering(), v1::ModelSpec::LOWERING_PLAIN);
  EXPECT_EQ(plain.train().operators(), 40);
  ASSERT_EQ(plain.train().by_operator_size(), 1);
  EXPECT_EQ(plain.train().by_operator(0).name(), "aten::mm");
  EXPECT_EQ(plain.train().by_operator(0).epoch_entries(), 90);
  EXPECT_EQ(plain.train().all().run_entries(), 900);
  EXPECT_EQ(plain.eval().all().shape_entries(), 1);
  EXPECT_EQ(plain.unknown_operators(0), "aten::new_one");
  ASSERT_EQ(plain.rows_size(), 1);
  const v1::GraphCacheCensusRow& row = plain.rows(0);
  EXPECT_EQ(row.policy().policy(), v1::GraphCachePolicy::POLICY_ALWAYS);
  EXPECT_EQ(row.shapes(), v1::GraphCachePolicy::SHAPES_EXACT);
  EXPECT_EQ(row.train_shapes(), 11);
  EXPECT_EQ(row.eval_shapes(), 12);
  EXPECT_EQ(row.shape_entries(), 13);
  EXPECT_EQ(row.epoch_entries(), 14);
  EXPECT_EQ(row.run_entries(), 15);
  EXPECT_EQ(row.compiled(), 16);
}

TEST(ConvertCensusTest, WhatWasNotMeasuredIsUnset) {
  graphcache::Census census = SampleCensus();
  census.measured_entries.reset();
  EXPECT_FALSE(CensusToWire(census).has_measured_entries());
}

class CensusServerTest : public ServerTest {
 protected:
  grpc::Status Take(const v1::CensusGraphCacheRequest& request) {
    grpc::ClientContext context;
    return v1::CensusService::NewStub(channel_)->CensusGraphCache(&context, request, &response_);
  }
  v1::CensusGraphCacheResponse response_;
};

TEST_F(CensusServerTest, ACensusIsTakenOfAJobsSpec) {
  jobs_.runner().SetCensus(SampleCensus());
  v1::CensusGraphCacheRequest request;
  request.mutable_spec()->set_dataset("datasets/zinc");
  request.mutable_spec()->mutable_model()->set_lowering(v1::ModelSpec::LOWERING_PLAIN);
  request.set_torch_release("2.15");
  const grpc::Status status = Take(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response_.torch_release(), "2.15");
  EXPECT_EQ(response_.lowerings_size(), 2);
  EXPECT_EQ(jobs_.runner().planned().back().batch_size, 32) << "defaults are filled in";
  EXPECT_EQ(jobs_.runner().planned().back().model.lowering, spec::Lowering::kPlain);
}

TEST_F(CensusServerTest, ABadRequestNamesTheField) {
  v1::CensusGraphCacheRequest request;
  grpc::Status status = Take(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status)->field_violations(0).field(), "spec");
  request.mutable_spec()->set_dataset("datasets/zinc");
  request.set_torch_release("2.14");
  status = Take(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto violation = Detail<google::rpc::BadRequest>(status)->field_violations(0);
  EXPECT_EQ(violation.field(), "torch_release");
  EXPECT_EQ(violation.description(), "2.14 is unknown; accepted: 2.13, 2.15");
}

}  // namespace
}  // namespace permafrost::api
