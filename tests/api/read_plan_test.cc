// Tests PlanDataset: the conversion between wire and domain, and the call.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "api/wire/convert_dataset.h"
#include "base/status.h"
#include "data/graph_fixture.h"
#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"
#include "spec/train_options.h"
#include "temp_dir.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadPlanQueryFromWire, TakesNoSeedTime) {
  v1::PlanDatasetRequest wire;
  wire.mutable_neighbors()->set_temporal(v1::TEMPORAL_SAMPLING_LAST);
  ASSERT_TRUE(ReadPlanQueryFromWire(wire).ok());
  EXPECT_TRUE(ReadPlanQueryFromWire(wire)->sampling.disjoint);
  wire.mutable_neighbors()->set_seed_time(3);
  EXPECT_EQ(GetViolations(ReadPlanQueryFromWire(wire).status()).front().field, "neighbors.seed_time");
  wire.mutable_neighbors()->clear_seed_time();
  wire.mutable_neighbors()->set_max_nodes(1000);
  wire.mutable_neighbors()->set_max_edges(1000);
  const auto bounded = GetViolations(ReadPlanQueryFromWire(wire).status());
  ASSERT_EQ(bounded.size(), 2U);
  EXPECT_EQ(bounded[0].field, "neighbors.max_nodes");
  EXPECT_EQ(bounded[1].field, "neighbors.max_edges");
}

TEST(ReadPlanQueryFromWire, CarriesEveryField) {
  v1::PlanDatasetRequest wire;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "memory_bytes: 4000000000 neighbors { fan_outs: [ 15, -1 ] replace: true weighted: true } batch_size: 7 seed: 9",
      &wire));
  const data::ReadPlanQuery query = ReadPlanQueryFromWire(wire).value();
  EXPECT_EQ(query.memory_bytes, 4'000'000'000U);
  EXPECT_EQ(query.batch_size, 7);
  EXPECT_EQ(query.sampling,
            (data::NeighborSamplingOptions{.fan_outs = {15, -1}, .replace = true, .weighted = true, .seed = 9}));
  EXPECT_EQ(ReadPlanQueryFromWire({})->batch_size, spec::DefaultOptions(spec::ModelLevel::kNode).batch_size)
      << "what a job takes";
  wire.set_batch_size(0);
  EXPECT_EQ(ReadPlanQueryFromWire(wire)->batch_size, 0) << "the domain refuses it";
}

TEST(ReadPlanErrorToWire, NamesFieldsAndTheDataset) {
  Violations violations;
  for (const char* field : {"memory_bytes", "batch_size", "fan_outs", "weighted"}) violations.Add(field, "is bad");
  const DatasetId id("git");
  EXPECT_THAT(
      GetViolations(ReadPlanErrorToWire(id, violations.ToStatus())),
      ElementsAre(FieldViolation{"memory_bytes", "is bad"}, FieldViolation{"batch_size", "is bad"},
                  FieldViolation{"neighbors.fan_outs", "is bad"}, FieldViolation{"neighbors.weighted", "is bad"}));
  const absl::Status refused = ReadPlanErrorToWire(
      id, WithReason(absl::FailedPreconditionError("has no rows"), "DATASET_WITHOUT_DENSE_FEATURES"));
  EXPECT_EQ(refused.message(), "dataset git has no rows");
  EXPECT_EQ(GetReason(refused), (ErrorReason{"DATASET_WITHOUT_DENSE_FEATURES", {{"dataset", "git"}}}));
  EXPECT_EQ(ReadPlanErrorToWire(id, absl::DataLossError("x")), absl::DataLossError("x"));
}

TEST(ReadPlanToWire, CarriesEveryField) {
  const data::PlannedReading reading{.what = data::ReadPlanCase::kBfloat16TwiceTheMemory,
                                     .memory_bytes = 1,
                                     .row_bytes = 2,
                                     .pages_per_row = 1.5,
                                     .held_rows = 3,
                                     .most_memory = 4,
                                     .hit_rate = 0.5,
                                     .reads = 5,
                                     .bytes = 6,
                                     .missed_bytes = 7,
                                     .seconds = 8,
                                     .packed_seconds = 10,
                                     .fill_seconds = 9};
  const data::ReadPlan plan{.nodes = 10,
                            .training_nodes = 11,
                            .batches = 12,
                            .sampled_batches = 13,
                            .mean_rows = 14,
                            .largest_rows = 15,
                            .rows_an_epoch = 16,
                            .distinct_rows = 17,
                            .edge_bytes = 18,
                            .edge_feature_bytes = 24,
                            .seconds = 19,
                            .disk = {.depth = 20,
                                     .seconds_per_read = 21,
                                     .seconds_per_byte = 22,
                                     .sequential_bytes_per_second = 23,
                                     .how = "so"},
                            .readings = {{.what = data::ReadPlanCase::kAsAsked}, reading}};
  v1::PlanDatasetResponse want;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        num_nodes: 10
        num_train_nodes: 11
        num_batches: 12
        sampled_batches: 13
        mean_rows: 14
        largest_rows: 15
        rows_per_epoch: 16
        distinct_rows: 17
        edge_bytes: 18
        edge_feature_bytes: 24
        seconds: 19
        disk { depth: 20 seconds_per_read: 21 seconds_per_byte: 22 sequential_bytes_per_second: 23 how: "so" }
        readings { what: CASE_AS_ASKED }
        readings {
          what: CASE_BFLOAT16_TWICE_THE_MEMORY
          memory_bytes: 1
          row_bytes: 2
          pages_per_row: 1.5
          held_rows: 3
          most_memory_bytes: 4
          hit_rate: 0.5
          reads: 5
          bytes: 6
          missed_row_bytes: 7
          seconds: 8
          fill_seconds: 9
          packed_seconds: 10
        }
      )pb",
      &want));
  EXPECT_EQ(ReadPlanToWire(plan).DebugString(), want.DebugString());
}

class PlanDatasetTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    ASSERT_TRUE(data::MakeTestGraph({}).Write(dir_.path() / "dense").ok());
    ASSERT_TRUE(data::MakeTestGraph({.features = data::DataType::kNone}).Write(dir_.path() / "sparse").ok());
    jobs_.catalog().PutStore("git", *data::Graph::Open(dir_.path() / "dense"));
    jobs_.catalog().PutStore("cora", *data::Graph::Open(dir_.path() / "sparse"));
    request_.set_name("datasets/git");
    request_.set_memory_bytes(200'000);
    request_.mutable_neighbors()->add_fan_outs(3);
  }
  grpc::Status Plan() {
    grpc::ClientContext context;
    return dataset_stub_->PlanDataset(&context, request_, &answer_);
  }

  TempDir dir_;
  v1::PlanDatasetRequest request_;
  v1::PlanDatasetResponse answer_;
};

TEST_F(PlanDatasetTest, AnEpochIsPlanned) {
  const grpc::Status status = Plan();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer_.num_nodes(), 9000);
  EXPECT_EQ(answer_.num_train_nodes(), 3000);
  EXPECT_EQ(answer_.num_batches(), 3) << "of 1024";
  EXPECT_EQ(answer_.sampled_batches(), 3);
  EXPECT_GT(answer_.mean_rows(), 1000);
  ASSERT_GE(answer_.readings_size(), 2);
  EXPECT_EQ(answer_.readings(0).what(), v1::PlannedReading::CASE_AS_ASKED);
  EXPECT_EQ(answer_.readings(0).memory_bytes(), 200'000);
  EXPECT_GT(answer_.readings(0).seconds(), 0);
  EXPECT_THAT(answer_.disk().how(), HasSubstr("graph.pfg"));
}

TEST_F(PlanDatasetTest, BadFieldsAreToldTogether) {
  request_.set_name("git");
  request_.set_memory_bytes(-1);
  request_.set_batch_size(100'000);
  request_.clear_neighbors();
  const grpc::Status status = Plan();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(Fields(status), ElementsAre("name", "memory_bytes", "batch_size", "neighbors.fan_outs"));
  request_.set_name("datasets/git");
  request_.set_memory_bytes(1);
  request_.set_batch_size(1);
  request_.mutable_neighbors()->add_fan_outs(0);
  EXPECT_THAT(Fields(Plan()), ElementsAre("neighbors.fan_outs")) << "that only the graph tells";
}

TEST_F(PlanDatasetTest, WhatCannotBePlannedSaysWhy) {
  const struct {
    const char* name;
    grpc::StatusCode code;
    const char* reason;
    const char* says;
  } kCases[] = {
      {"none", grpc::StatusCode::NOT_FOUND, nullptr, "none"},
      {"zinc", grpc::StatusCode::FAILED_PRECONDITION, "DATASET_IS_GRAPH_SET", "dataset zinc holds many small graphs"},
      {"cora", grpc::StatusCode::FAILED_PRECONDITION, "DATASET_WITHOUT_DENSE_FEATURES",
       "dataset cora has no dense node features"},
  };
  for (const auto& c : kCases) {
    request_.set_name(std::string("datasets/") + c.name);
    const grpc::Status status = Plan();
    EXPECT_EQ(status.error_code(), c.code) << c.name << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(c.says));
    if (c.reason != nullptr) {
      EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status)->reason(), c.reason);
    }
  }
}

}  // namespace
}  // namespace permafrost::api
