// Tests that the contract's enums and the domain's name tables have the same words.
#include "api/wire/wire_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/catalog/catalog.h"
#include "graphcache/shape_plan.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/job.pb.h"
#include "spec/policy.h"

namespace permafrost::api {
namespace {

// `unspecified` is the number of domain values that the wire leaves unspecified.
template <class Wire, const auto& kNames>
void ExpectSameWords(std::size_t unspecified = 0) {
  using Table = WireEnum<Wire, kNames>;
  const auto& type = *google::protobuf::GetEnumDescriptor<Wire>();
  EXPECT_EQ(Table::size() + unspecified, kNames.rows.size()) << type.full_name() << " lacks a name of the domain";
  EXPECT_EQ(static_cast<int>(Table::size()), type.value_count() - 1) << type.full_name() << " has one more";
  for (int i = 1; i < type.value_count(); ++i) {
    const auto domain = Table::FromWire(type.value(i)->number());
    ASSERT_TRUE(domain) << type.value(i)->name();
    EXPECT_EQ(static_cast<int>(Table::ToWire(*domain)), type.value(i)->number()) << type.value(i)->name();
  }
}

TEST(WireEnum, TheContractAndTheTablesAreTheSameWords) {
  ExpectSameWords<v1::Job::State, jobs::kJobStateNames>();
  ExpectSameWords<v1::JobSpec::Loss, spec::kLossNames>();
  ExpectSameWords<v1::Metric, spec::kMetricNames>();
  ExpectSameWords<v1::ModelSpec::Architecture, spec::kArchitectureNames>();
  ExpectSameWords<v1::ModelSpec::Lowering, spec::kLoweringNames>();
  ExpectSameWords<v1::ModelSpec::Precision, spec::kPrecisionNames>();
  ExpectSameWords<v1::ModelSpec::Pooling, spec::kPoolingNames>();
  ExpectSameWords<v1::OptimizerSpec::Algorithm, spec::kOptimizerNames>();
  ExpectSameWords<v1::OptimizerSpec::Schedule, spec::kScheduleNames>();
  ExpectSameWords<v1::Batching::Kind, spec::kBatchingNames>();
  ExpectSameWords<v1::ExportJobRequest::Artifact, jobs::kArtifactNames>();
  ExpectSameWords<v1::Dataset::State, data::kDatasetStateNames>();
  ExpectSameWords<v1::FeatureSummary::DataType, data::kDataTypeNames>(/*unspecified=*/1);
  ExpectSameWords<v1::ImportOptions::Format, data::kImportFormatNames>();
  ExpectSameWords<v1::ImportOptions::NodeFeatures, data::kNodeFeatureChoiceNames>();
  ExpectSameWords<v1::ImportOptions::FeatureType, data::kFeatureTypeNames>();
  ExpectSameWords<v1::ImportOptions::Order, data::kNodeOrderNames>();
  ExpectSameWords<v1::EdgeListOptions::NodeIds, data::kNodeIdsNames>();
  ExpectSameWords<v1::EdgeListOptions::Column, data::kEdgeColumnNames>();
  ExpectSameWords<v1::EdgeListOptions::Header, data::kHeaderNames>();
  ExpectSameWords<v1::GraphCachePolicy::Policy, spec::kPolicyNames>();
  ExpectSameWords<v1::GraphCachePolicy::OnMiss, spec::kOnMissNames>();
  ExpectSameWords<v1::GraphCachePolicy::Shapes, spec::kShapesNames>();
  ExpectSameWords<v1::GraphCacheMode, kModeNames>();
  ExpectSameWords<v1::FreezePointSource, graphcache::kFreezeSourceNames>();
}

TEST(WireEnum, WhatOneSideDoesNotKnowIsUnspecifiedOrRefused) {
  using DataTypes = WireEnum<v1::FeatureSummary::DataType, data::kDataTypeNames>;
  EXPECT_EQ(DataTypes::ToWire(data::DataType::kNone), v1::FeatureSummary::DATA_TYPE_UNSPECIFIED);
  using Losses = WireEnum<v1::JobSpec::Loss, spec::kLossNames>;
  EXPECT_EQ(Losses::FromWire(0), std::nullopt);
  spec::Loss loss = spec::Loss::kBce;
  Violations violations;
  Losses::Read(0, "loss", loss, violations);
  EXPECT_TRUE(violations.empty());
  Losses::Read(99, "loss", loss, violations);
  EXPECT_EQ(loss, spec::Loss::kBce);
  EXPECT_THAT(std::string(violations.ToStatus().message()), testing::HasSubstr("LOSS_L1, LOSS_MSE"));
}

}  // namespace
}  // namespace permafrost::api
