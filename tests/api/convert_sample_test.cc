#include "api/wire/convert_dataset.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;

v1::SampleDatasetRequest Parse(const char* text) {
  v1::SampleDatasetRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return request;
}

TEST(SampleQueryFromWire, NeighborsCarryEveryField) {
  const auto query = SampleQueryFromWire(Parse(
      "nodes: [ 5, 4294967294 ] count: 7 seed: 9 neighbors { fan_outs: [ 15, -1 ] replace: true weighted: true }"));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_THAT(query->nodes, ElementsAre(5, 4'294'967'294));
  EXPECT_EQ(query->count, 7);
  EXPECT_EQ(std::get<data::NeighborSamplingOptions>(query->kind),
            (data::NeighborSamplingOptions{.fan_outs = {15, -1}, .replace = true, .weighted = true, .seed = 9}));
}

TEST(SampleQueryFromWire, NeighborsMayBeBounded) {
  const auto query = SampleQueryFromWire(Parse("neighbors { fan_outs: 3 max_nodes: 40 max_edges: 90 }"));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(std::get<data::NeighborSamplingOptions>(query->kind),
            (data::NeighborSamplingOptions{.fan_outs = {3}, .max_nodes = 40, .max_edges = 90}));
}

TEST(SampleQueryFromWire, TemporalNeighborsAreDisjointAndHaveATime) {
  const auto query = SampleQueryFromWire(
      Parse("neighbors { fan_outs: 3 temporal: TEMPORAL_SAMPLING_LAST seed_time: 0 sampler: SAMPLER_KIND_LABOR }"));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->seed_time, 0) << "a time, not its absence";
  EXPECT_EQ(std::get<data::NeighborSamplingOptions>(query->kind),
            (data::NeighborSamplingOptions{.fan_outs = {3},
                                           .disjoint = true,
                                           .temporal = spec::TemporalSampling::kLast,
                                           .sampler = spec::SamplerKind::kLabor}));
  const auto plain = SampleQueryFromWire(Parse("neighbors { fan_outs: 3 }"));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->seed_time, std::nullopt);
  EXPECT_FALSE(std::get<data::NeighborSamplingOptions>(plain->kind).disjoint);
  v1::SampleDatasetRequest unknown;
  unknown.mutable_neighbors()->add_fan_outs(3);
  unknown.mutable_neighbors()->set_temporal(static_cast<v1::TemporalSampling>(9));
  EXPECT_THAT(GetViolations(SampleQueryFromWire(unknown).status()),
              ElementsAre(testing::Field(&FieldViolation::field, "neighbors.temporal")));
}

TEST(SampleQueryFromWire, AWalkCarriesEveryField) {
  const auto query = SampleQueryFromWire(Parse("seed: 9 walk { length: 20 p: 0.5 q: 2 }"));
  ASSERT_TRUE(query.ok()) << query.status();
  const auto& walk = std::get<data::WalkOptions>(query->kind);
  EXPECT_EQ(walk.length, 20);
  EXPECT_EQ(walk.p, 0.5);
  EXPECT_EQ(walk.q, 2);
  EXPECT_EQ(walk.seed, 9u);
}

TEST(SampleQueryFromWire, WhatIsNotSetIsAsTheProtosCommentsSay) {
  const auto query = SampleQueryFromWire(Parse("walk {}"));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->count, 5);
  EXPECT_EQ(std::get<data::WalkOptions>(query->kind).length, 10);
  EXPECT_EQ(std::get<data::WalkOptions>(query->kind).p, 1);
  EXPECT_EQ(std::get<data::WalkOptions>(query->kind).q, 1);
}

TEST(SampleQueryFromWire, AnExplicitZeroIsTheDomainsToRefuse) {
  const auto query = SampleQueryFromWire(Parse("count: 0 walk { length: 0 p: 0 q: 0 }"));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->count, 0);
  EXPECT_EQ(std::get<data::WalkOptions>(query->kind).length, 0);
  EXPECT_EQ(std::get<data::WalkOptions>(query->kind).p, 0);
  EXPECT_EQ(std::get<data::WalkOptions>(query->kind).q, 0);
}

TEST(SampleQueryFromWire, OneKindMustBeGiven) {
  const auto violations = GetViolations(SampleQueryFromWire(Parse("count: 3")).status());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "neighbors");
}

TEST(SampleErrorToWire, FieldsAreNamedAsOnTheWire) {
  data::SampleQuery neighbors, walk;
  walk.kind = data::WalkOptions();
  const struct {
    const data::SampleQuery& query;
    const char* domain;
    const char* wire;
  } kCases[] = {{neighbors, "nodes", "nodes"},
                {neighbors, "nodes[3]", "nodes[3]"},
                {neighbors, "names", "names"},
                {walk, "names[1]", "names[1]"},
                {neighbors, "count", "count"},
                {neighbors, "fan_outs", "neighbors.fan_outs"},
                {neighbors, "weighted", "neighbors.weighted"},
                {walk, "nodes[3]", "nodes[3]"},
                {walk, "p", "walk.p"},
                {walk, "length", "walk.length"},
                {walk, "walks", "walk"}};
  for (const auto& c : kCases) {
    Violations violations;
    violations.Add(c.domain, "is bad");
    const auto told = GetViolations(SampleErrorToWire(c.query, violations.ToStatus()));
    EXPECT_THAT(told, ElementsAre(FieldViolation{c.wire, "is bad"}));
  }
  const absl::Status damaged = absl::DataLossError("graph.pfg: in.neighbors: bytes 0..65535 are damaged");
  EXPECT_EQ(SampleErrorToWire(walk, damaged), damaged);
}

TEST(SampleAnswerToWire, CarriesEveryField) {
  data::SampleAnswer answer;
  answer.nodes = {3, 4'000'000'000};
  answer.nodes_of_hop = {2, 1};
  answer.edges = {{7, 3, 1, 0.5}, {8, 7, 2, 1}};
  answer.walk_length = 2;
  answer.walks = {3, 5, 4'000'000'000, 6};
  answer.seconds = 0.25;
  answer.names = {{3, "ann"}, {7, "\xff"}};
  v1::SampleDatasetResponse want;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        nodes: [ 3, 4000000000 ]
        nodes_of_hop: [ 2, 1 ]
        edges { source: 7 target: 3 hop: 1 weight: 0.5 }
        edges { source: 8 target: 7 hop: 2 weight: 1 }
        walk_length: 2
        walks: [ 3, 5, 4000000000, 6 ]
        seconds: 0.25
        names { row: 3 name: "ann" }
        names { row: 7 name: "\357\277\275" }
      )pb",
      &want));
  EXPECT_EQ(SampleAnswerToWire(answer).DebugString(), want.DebugString());
}

}  // namespace
}  // namespace permafrost::api
