// Tests those defaults and refusals of specs that spec_fields_test.cc does not cover.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/wire/convert_job.h"
#include "job_requests.h"

namespace permafrost::api {
namespace {

TEST(JobSpec, TheNameOfAJobWhoseWeightsAreTakenIsChecked) {
  v1::CreateJobRequest request = Minimal();
  request.mutable_spec()->mutable_init_from()->set_job("first");
  EXPECT_THAT(FromWire(request).status().message(), testing::HasSubstr("spec.init_from.job: \"first\" is n"));
}

TEST(JobSpec, Node2VecTakesPyGsExampleForWhatIsNotSaid) {
  v1::CreateJobRequest request = Minimal();
  request.mutable_spec()->mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_NODE2VEC);
  const auto got = FromWire(request);
  ASSERT_TRUE(got.ok()) << got.status();
  spec::TrainOptions expected = spec::DefaultOptions(spec::ModelLevel::kNode);
  expected.dataset = got->spec.train.dataset;
  expected.graph_cache = got->spec.train.graph_cache;
  expected.model.architecture = spec::Architecture::kNode2Vec;
  spec::SetNode2VecDefaults(expected);
  EXPECT_EQ(got->spec.train, expected);
  EXPECT_EQ(expected.batch_size, 128);
  EXPECT_EQ(expected.optimizer.learning_rate, 0.01);
  EXPECT_EQ(expected.optimizer.algorithm, spec::OptimizerAlgorithm::kSparseAdam);

  jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
  job.spec.train = expected;
  job.spec.train.node2vec = {
      .walk_length = 33, .context_size = 7, .walks_per_node = 3, .p = 0.25, .q = 4, .num_negative_samples = 5};
  job.spec.train.optimizer.algorithm = spec::OptimizerAlgorithm::kAdam;
  *request.mutable_spec() = JobToWire(job).spec();
  EXPECT_EQ(FromWire(request)->spec.train, job.spec.train);

  request.mutable_spec()->mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_GCN);
  const auto refused = GetViolations(FromWire(request).status());
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].field, "spec.node2vec");
  EXPECT_EQ(refused[0].description, "is given for gcn; accepted: for architecture node2vec");
}

}  // namespace
}  // namespace permafrost::api
