// Tests the states that a list filters by, and artifacts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/wire/convert_job.h"
#include "base/status.h"
#include "job_requests.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> RefusedFields(const Violations& violations) {
  std::vector<std::string> fields;
  for (const FieldViolation& v : GetViolations(violations.ToStatus())) fields.push_back(v.field);
  return fields;
}

TEST(JobState, RoundTripsThroughTheFilter) {
  for (const auto& [state, name] : jobs::kJobStateNames.rows) {
    v1::ListJobsRequest request;
    request.add_states(JobToWire(MakeJob("a", state)).state());
    Violations violations;
    EXPECT_THAT(JobStatesFromWire(request, violations), ElementsAre(state)) << name;
    EXPECT_TRUE(violations.empty()) << name;
  }
}

TEST(JobState, TheFilterRefusesUnspecifiedAndUnknown) {
  v1::ListJobsRequest request;
  request.add_states(v1::Job::STATE_RUNNING);
  request.add_states(v1::Job::STATE_UNSPECIFIED);
  request.add_states(static_cast<v1::Job::State>(42));
  Violations violations;
  JobStatesFromWire(request, violations);
  EXPECT_THAT(RefusedFields(violations), ElementsAre("states[1]", "states[2]"));
}

TEST(JobState, AFilterLongerThanTheStatesIsOneViolation) {
  v1::ListJobsRequest request;
  for (const auto& [state, name] : jobs::kJobStateNames.rows) {
    request.add_states(JobToWire(MakeJob("a", state)).state());
  }
  Violations violations;
  EXPECT_EQ(JobStatesFromWire(request, violations).size(), jobs::kJobStateNames.rows.size());
  EXPECT_TRUE(violations.empty()) << "all of them, each once";
  for (int i = 0; i < 1000; ++i) request.add_states(static_cast<v1::Job::State>(i % 2 * 42));
  EXPECT_THAT(JobStatesFromWire(request, violations), testing::IsEmpty());
  EXPECT_THAT(RefusedFields(violations), ElementsAre("states"));
}

TEST(Artifact, ZeroIsBestWeightsAndUnknownIsRefused) {
  Violations violations;
  EXPECT_EQ(ArtifactFromWire(0, violations), jobs::Artifact::kBestWeights);
  EXPECT_EQ(ArtifactFromWire(v1::ExportJobRequest::ARTIFACT_LAST_WEIGHTS, violations), jobs::Artifact::kLastWeights);
  EXPECT_EQ(ArtifactFromWire(v1::ExportJobRequest::ARTIFACT_TEST_PREDICTIONS, violations),
            jobs::Artifact::kTestPredictions);
  EXPECT_TRUE(violations.empty());
  ArtifactFromWire(9, violations);
  EXPECT_THAT(RefusedFields(violations), ElementsAre("artifact"));
}

}  // namespace
}  // namespace permafrost::api
