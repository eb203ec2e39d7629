// A job's spec as it is told makes the same job again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/convert_job.h"
#include "fakes.h"
#include "job_requests.h"

namespace permafrost::api {
namespace {

TEST(JobSpec, RoundTripsEveryField) {
  jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
  job.spec.train = {.dataset = DatasetId("set"),
                    .model = {.hidden_channels = 7, .num_layers = 3, .pooling = spec::Pooling::kSum, .dropout = 0.125},
                    .optimizer = {.algorithm = spec::OptimizerAlgorithm::kAdamW,
                                  .learning_rate = 0.5,
                                  .weight_decay = 0.25,
                                  .max_grad_norm = 2.5,
                                  .schedule = spec::Schedule::kPlateau,
                                  .warmup_steps = 19,
                                  .decay_factor = 0.75,
                                  .plateau_patience = 0,
                                  .plateau_threshold = 0,
                                  .min_learning_rate = 0.125,
                                  .weight_decay_of = spec::WeightDecayOf::kMatrices,
                                  .ema_decay = 0.875,
                                  .accumulate_steps = 43},
                    .loss = spec::Loss::kMse,
                    .metrics = {spec::Metric::kR2, spec::Metric::kMae},
                    .epochs = 11,
                    .batch_size = 13,
                    .seed = std::numeric_limits<uint64_t>::max(),
                    .checkpoint = {.every_steps = 17, .every_seconds = 0, .keep = 5},
                    .graph_cache = {.policy = spec::Policy::kAlways,
                                    .freeze_at = 23,
                                    .on_miss = spec::OnMiss::kTransient,
                                    .shapes = spec::Shapes::kLadder,
                                    .rungs = 29,
                                    .audit_every = 29,
                                    .strict = true,
                                    .max_executables = 31},
                    .batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 31, .max_edges = 37},
                    .cross_validation = {.folds = 10, .fold = 9, .seed = 41},
                    .init_from = {.job = JobId("first"), .weights = spec::JobWeights::kLast, .by_name = true},
                    .fixed_parameters = {"convs.0", "head"}};
  job.spec.priority = -100;
  v1::CreateJobRequest request;
  *request.mutable_spec() = JobToWire(job).spec();
  request.set_job_id("mine");
  request.set_request_id("r");
  request.set_validate_only(true);
  const auto got = FromWire(request);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->spec, job.spec);
  EXPECT_EQ(got->id, JobId("mine"));
  EXPECT_EQ(got->request_id, "r");
  EXPECT_TRUE(got->validate_only);
}

TEST(JobSpec, RoundTripsEveryFieldOfLinks) {
  for (const auto& [sampling, sampling_name] : spec::kNegativeSamplingNames.rows) {
    for (const auto& [score, score_name] : spec::kLinkScoreNames.rows) {
      jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
      job.spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
      job.spec.train.dataset = DatasetId("cora");
      job.spec.train.loss = spec::Loss::kBce;
      job.spec.train.metrics = {spec::Metric::kHitsAt10, spec::Metric::kHitsAt20, spec::Metric::kHitsAt50,
                                spec::Metric::kHitsAt100, spec::Metric::kMrr};
      job.spec.train.links = {.enabled = true,
                              .split = {.valid_part = 0, .test_part = 0.25, .seed = 7},
                              .negatives = 3,
                              .eval_negatives = 41,
                              .sampling = sampling,
                              .score = score};
      v1::CreateJobRequest request;
      *request.mutable_spec() = JobToWire(job).spec();
      const auto got = FromWire(request);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->spec, job.spec) << sampling_name << score_name;
    }
  }
}

TEST(JobSpec, WeightsOfAFileAndTheDecayOfTheFirstLayerRoundTrip) {
  jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
  job.spec.train.init_from = {.file = "/data/w.safetensors"};
  job.spec.train.optimizer.weight_decay = 0.5;
  job.spec.train.optimizer.weight_decay_of = spec::WeightDecayOf::kFirstLayer;
  v1::CreateJobRequest request;
  *request.mutable_spec() = JobToWire(job).spec();
  EXPECT_EQ(FromWire(request)->spec, job.spec);
  request.mutable_spec()->mutable_init_from()->set_job("first");
  const auto refused = FromWire(request);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("spec.init_from.job: \"first\" is n"));
}

TEST(JobSpec, RoundTripsEveryEnumValue) {
  for (const auto& [loss, name] : spec::kLossNames.rows) {
    if (loss == spec::Loss::kCrossEntropy) continue;  // node-level; below
    for (const auto& [pooling, pooling_name] : spec::kPoolingNames.rows) {
      for (const auto& [algorithm, algorithm_name] : spec::kOptimizerNames.rows) {
        jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
        job.spec.train.loss = loss;
        job.spec.train.model.pooling = pooling;
        job.spec.train.optimizer.algorithm = algorithm;
        v1::CreateJobRequest request;
        *request.mutable_spec() = JobToWire(job).spec();
        EXPECT_EQ(FromWire(request)->spec, job.spec) << name << pooling_name << algorithm_name;
      }
    }
  }
}

TEST(JobSpec, RoundTripsEveryFieldOfANodeLevelJob) {
  for (const spec::Architecture architecture : {spec::Architecture::kSage, spec::Architecture::kGcn}) {
    for (const spec::Loss loss : {spec::Loss::kCrossEntropy, spec::Loss::kBce}) {
      jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
      job.spec.train.model = {.architecture = architecture,
                              .level = spec::ModelLevel::kNode,
                              .hidden_channels = 48,
                              .num_layers = 3,
                              .dropout = 0.5,
                              .input_dropout = 0.25,
                              .heads = 6,
                              .aggregation = spec::Aggregation::kMax,
                              .norm = spec::Norm::kLayer,
                              .residual = true,
                              .jumping_knowledge = spec::JumpingKnowledge::kMax,
                              .virtual_node = true,
                              .normalize_features = true,
                              .node_inputs = spec::NodeInputs::kConstant,
                              .edge_inputs = architecture == spec::Architecture::kGine ? spec::EdgeInputs::kWeights
                                                                                       : spec::EdgeInputs::kNone,
                              .precision = spec::Precision::kBfloat16};
      job.spec.train.loss = loss;
      job.spec.train.class_weights = {0.25, 4};
      job.spec.train.nodes = {{15, 10, -1}, {20, 20, 20}, true, true, false, 64, false};
      v1::CreateJobRequest request;
      *request.mutable_spec() = JobToWire(job).spec();
      const auto got = FromWire(request);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->spec, job.spec);
      job.spec.train.batching = {.kind = spec::BatchingKind::kBudget, .max_nodes = 5000, .max_edges = 9000};
      *request.mutable_spec() = JobToWire(job).spec();
      EXPECT_EQ(FromWire(request)->spec, job.spec);
      job.spec.train.batching = {};
      job.spec.train.nodes.eval_fan_outs.clear();
      job.spec.train.nodes.layer_wise_evaluation = true;
      *request.mutable_spec() = JobToWire(job).spec();
      EXPECT_EQ(FromWire(request)->spec, job.spec);
    }
  }
}

TEST(JobSpec, OfNode2VecWhatIsNotSaidIsAsPyGsExampleAndTheRestRoundTrips) {
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

TEST(JobSpec, RoundTripsHowNeighboursAreDrawn) {
  for (const auto& [temporal, name] : spec::kTemporalSamplingNames.rows) {
    for (const auto& [sampler, sampler_name] : spec::kSamplerKindNames.rows) {
      jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
      job.spec.train = spec::DefaultOptions(spec::ModelLevel::kNode);
      job.spec.train.dataset = DatasetId("git");
      job.spec.train.nodes = {.fan_outs = {3, 2}, .sampler = sampler, .disjoint = true, .temporal = temporal};
      if (temporal != spec::TemporalSampling::kNone) job.spec.train.nodes.seed_time = 0;
      v1::CreateJobRequest request;
      *request.mutable_spec() = JobToWire(job).spec();
      const auto back = CreateRequestFromWire(request, kServerDefault);
      ASSERT_TRUE(back.ok()) << name << sampler_name << back.status();
      EXPECT_EQ(back->spec.train.nodes, job.spec.train.nodes) << name;
    }
  }
}

TEST(JobSpec, RoundTripsEveryEnumValueOfTheGraphCacheAndTheSchedule) {
  for (const auto& [policy, name] : spec::kPolicyNames.rows) {
    for (const auto& [on_miss, on_miss_name] : spec::kOnMissNames.rows) {
      for (const auto& [schedule, schedule_name] : spec::kScheduleNames.rows) {
        jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
        const auto shapes = spec::kShapesNames.rows[static_cast<size_t>(policy) % 4].first;
        job.spec.train.graph_cache = {.policy = policy, .freeze_at = 0, .on_miss = on_miss, .shapes = shapes};
        job.spec.train.optimizer.schedule = schedule;
        v1::CreateJobRequest request;
        *request.mutable_spec() = JobToWire(job).spec();
        EXPECT_EQ(CreateRequestFromWire(request, kServerDefault)->spec, job.spec)
            << name << on_miss_name << schedule_name << ": what was told is what is kept";
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::api
