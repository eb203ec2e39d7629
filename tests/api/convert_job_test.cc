#include "api/wire/convert_job.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "job_requests.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Returns the refusal of a request. The conversion refuses what the domain cannot hold, and the job manager the rest.
absl::Status Refusal(const v1::CreateJobRequest& wire) {
  const auto request = FromWire(wire);
  return request.ok() ? jobs::CheckRequest(*request) : request.status();
}

std::vector<std::string> FieldsOf(const absl::Status& status) {
  std::vector<std::string> fields;
  for (const FieldViolation& v : GetViolations(status)) fields.push_back(v.field);
  return fields;
}

TEST(CreateRequestFromWire, ZerosAreTheDefaultsOfTheDomain) {
  const auto request = FromWire(Minimal());
  ASSERT_TRUE(request.ok()) << request.status();
  spec::JobSpec want;
  want.train.dataset = DatasetId("zinc");
  EXPECT_EQ(request->spec, want);
  EXPECT_TRUE(request->id.empty());
  EXPECT_FALSE(request->validate_only);
}

TEST(CreateRequestFromWire, ABudgetAloneSaysHowManyGraphsMeet) {
  v1::CreateJobRequest wire = Minimal();
  wire.mutable_spec()->mutable_batching()->set_kind(v1::Batching::KIND_BUDGET);
  wire.mutable_spec()->mutable_batching()->set_max_nodes(1000);
  EXPECT_EQ(FromWire(wire)->spec.train.batch_size, 65'536);
  wire.mutable_spec()->set_batch_size(7);
  EXPECT_EQ(FromWire(wire)->spec.train.batch_size, 7);
}

TEST(CreateRequestFromWire, ABudgetOfSampledBlocksSaysNothingOfTheirSeeds) {
  v1::CreateJobRequest wire = Minimal();
  v1::JobSpec& spec = *wire.mutable_spec();
  spec.mutable_batching()->set_kind(v1::Batching::KIND_BUDGET);
  spec.mutable_batching()->set_max_edges(9000);
  spec.mutable_neighbor_sampling()->add_fan_outs(15);
  const auto request = FromWire(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  const spec::TrainOptions& train = request->spec.train;
  EXPECT_EQ(train.model.level, spec::ModelLevel::kNode);
  EXPECT_EQ(train.batch_size, spec::DefaultsOf(spec::ModelLevel::kNode).batch_size);
  EXPECT_EQ(train.batching, (spec::BatchingOptions{.kind = spec::BatchingKind::kBudget, .max_edges = 9000}));
}

TEST(CreateRequestFromWire, TheDefaultsAreThoseOfTheProtosComments) {
  const spec::JobSpec spec = FromWire(Minimal())->spec;
  EXPECT_EQ(spec.train.epochs, 20);
  EXPECT_EQ(spec.train.batch_size, 32);
  EXPECT_EQ(spec.train.model.architecture, spec::Architecture::kGine);
  EXPECT_EQ(spec.train.model.hidden_channels, 64);
  EXPECT_EQ(spec.train.model.num_layers, 4);
  EXPECT_EQ(spec.train.model.pooling, spec::Pooling::kMean);
  EXPECT_EQ(spec.train.optimizer.algorithm, spec::OptimizerAlgorithm::kAdam);
  EXPECT_EQ(spec.train.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(spec.train.optimizer.weight_decay, 0);
  EXPECT_EQ(spec.train.loss, spec::Loss::kL1);
  EXPECT_EQ(spec.train.checkpoint.every_steps, 0);
  EXPECT_EQ(spec.train.checkpoint.every_seconds, 60);
  EXPECT_EQ(spec.train.checkpoint.keep, 2);
  EXPECT_EQ(spec.priority, 0);
  EXPECT_EQ(spec.train.model.dropout, 0);
  EXPECT_EQ(spec.train.optimizer.max_grad_norm, 0);
  EXPECT_EQ(spec.train.optimizer.schedule, spec::Schedule::kConstant);
  EXPECT_EQ(spec.train.optimizer.warmup_steps, 0);
}

TEST(CreateRequestFromWire, WhatTheGraphCacheLeavesOpenIsTheServersDefault) {
  using spec::OnMiss;
  using spec::Policy;
  using spec::Shapes;
  const struct {
    const char* why;
    const char* wire;
    spec::PolicyOptions want;
  } kCases[] = {
      {"nothing is given", "", kServerDefault},
      {"an empty message", "graph_cache {}", kServerDefault},
      {"on_miss alone", "graph_cache { on_miss: ON_MISS_REJECT }", {Policy::kFreeze, 40, OnMiss::kReject}},
      {"shapes alone", "graph_cache { shapes: SHAPES_EXACT }", {Policy::kFreeze, 40, OnMiss::kEager, Shapes::kExact}},
      {"audit_every, strict and max_executables",
       "graph_cache { audit_every: 0 strict: true max_executables: 5 }",
       {Policy::kFreeze, 40, OnMiss::kEager, Shapes::kAuto, 0, 0, true, 5}},
      {"rungs alone", "graph_cache { rungs: 3 }", {Policy::kFreeze, 40, OnMiss::kEager, Shapes::kAuto, 3}},
      {"freeze_at alone", "graph_cache { freeze_at: 7 }", {Policy::kFreeze, 7, OnMiss::kEager}},
      {"0 is given, too", "graph_cache { freeze_at: 0 }", {Policy::kFreeze, 0, OnMiss::kEager}},
      {"the default's own policy", "graph_cache { policy: POLICY_FREEZE }", kServerDefault},
      {"another policy has no use for the default's freeze point",
       "graph_cache { policy: POLICY_ALWAYS }",
       {Policy::kAlways, 0, OnMiss::kEager}},
      {"another policy with a freeze point of its own",
       "graph_cache { policy: POLICY_ALWAYS freeze_at: 9 on_miss: ON_MISS_TRANSIENT }",
       {Policy::kAlways, 9, OnMiss::kTransient}},
  };
  for (const auto& c : kCases) {
    v1::CreateJobRequest request = Minimal();
    v1::JobSpec open;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(c.wire, &open)) << c.why;
    request.mutable_spec()->MergeFrom(open);
    const auto got = CreateRequestFromWire(request, kServerDefault);
    ASSERT_TRUE(got.ok()) << c.why << got.status();
    EXPECT_EQ(got->spec.train.graph_cache, c.want) << c.why;
  }
}

TEST(CreateRequestFromWire, LinksAreDividedByTheDatasetWhereItDividesThem) {
  const auto divided = [](bool gives) {
    return [gives](const DatasetId&) {
      return jobs::DatasetTraits{.level = spec::ModelLevel::kNode, .gives_links = gives};
    };
  };
  const auto read = [](const v1::CreateJobRequest& request, const LevelOf& level_of) {
    return CreateRequestFromWire(request, spec::PolicyOptions(), level_of);
  };
  v1::CreateJobRequest request = Minimal();
  v1::LinkPrediction& links = *request.mutable_spec()->mutable_link_prediction();
  EXPECT_TRUE(read(request, divided(true))->spec.train.links.given);
  EXPECT_FALSE(read(request, divided(false))->spec.train.links.given);
  links.set_split(v1::LinkPrediction::SPLIT_DATASET);
  EXPECT_TRUE(read(request, divided(false))->spec.train.links.given);
  // A new request with the reported spec of a job makes the same job.
  jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
  job.spec = read(request, divided(true))->spec;
  v1::CreateJobRequest again;
  *again.mutable_spec() = JobToWire(job).spec();
  EXPECT_FALSE(again.spec().link_prediction().has_valid_part());
  EXPECT_EQ(read(again, divided(true))->spec, job.spec);

  links.set_split(v1::LinkPrediction::SPLIT_DRAWN);
  links.set_test_part(0.2);
  EXPECT_FALSE(read(request, divided(true))->spec.train.links.given);
  links.clear_split();
  links.set_valid_part(0.1);
  const auto refused = read(request, divided(true));
  ASSERT_EQ(GetViolations(refused.status()).size(), 2U) << refused.status();
  EXPECT_EQ(GetViolations(refused.status())[0].field, "spec.link_prediction.valid_part");
  EXPECT_EQ(GetViolations(refused.status())[1].field, "spec.link_prediction.test_part");
  EXPECT_TRUE(read(request, divided(false)).ok());
}

TEST(CreateRequestFromWire, BareNodesOfASetBeginWithTheirDegree) {
  const auto inputs = [](const v1::CreateJobRequest& request, const LevelOf& level_of) {
    return CreateRequestFromWire(request, spec::PolicyOptions(), level_of)->spec.train.model.node_inputs;
  };
  const LevelOf bare = [](const DatasetId&) { return jobs::DatasetTraits{.bare_nodes = true}; };
  const LevelOf featured = [](const DatasetId&) { return jobs::DatasetTraits{}; };
  v1::CreateJobRequest request = Minimal();
  EXPECT_EQ(inputs(request, bare), spec::NodeInputs::kDegree);
  EXPECT_EQ(inputs(request, featured), spec::NodeInputs::kAuto);
  request.mutable_spec()->mutable_model()->set_node_inputs(v1::ModelSpec::NODE_INPUTS_CONSTANT);
  EXPECT_EQ(inputs(request, bare), spec::NodeInputs::kConstant);
}

TEST(CreateRequestFromWire, LinksAreOfNodesByBceUnlessItIsSaidOtherwise) {
  v1::CreateJobRequest request = Minimal();
  request.mutable_spec()->mutable_link_prediction();
  const auto got = FromWire(request);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->spec.train.model.level, spec::ModelLevel::kNode);
  EXPECT_EQ(got->spec.train.loss, spec::Loss::kBce);
  EXPECT_EQ(got->spec.train.links, (spec::LinkOptions{.enabled = true}));
  EXPECT_EQ(spec::MetricsOf(got->spec.train), std::vector{spec::Metric::kMrr});
}

TEST(CreateRequestFromWire, WhatIsNotSaidFollowsFromTheDataset) {
  v1::CreateJobRequest request = Minimal();
  for (const spec::ModelLevel level : {spec::ModelLevel::kGraph, spec::ModelLevel::kNode}) {
    const LevelOf level_of = [level](const DatasetId&) { return jobs::DatasetTraits{.level = level}; };
    const auto said_nothing = CreateRequestFromWire(request, spec::PolicyOptions(), level_of);
    ASSERT_TRUE(said_nothing.ok()) << said_nothing.status();
    spec::TrainOptions expected = spec::DefaultOptions(level);
    expected.dataset = said_nothing->spec.train.dataset;
    expected.graph_cache = said_nothing->spec.train.graph_cache;
    EXPECT_EQ(said_nothing->spec.train, expected);
    v1::CreateJobRequest gin = request;
    gin.mutable_spec()->mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_GIN);
    expected.model.architecture = spec::Architecture::kGin;
    EXPECT_EQ(CreateRequestFromWire(gin, spec::PolicyOptions(), level_of)->spec.train, expected);
  }
}

TEST(CreateRequestFromWire, OfAnUnknownDatasetTheLevelFollowsFromWhatIsSaid) {
  const struct {
    const char* why;
    const char* wire;
    int64_t num_layers, batch_size;
    spec::Loss loss;
    int64_t look_ahead;
  } kCases[] = {
      {"gine", "model { architecture: ARCHITECTURE_GINE }", 4, 32, spec::Loss::kL1, 64},
      {"sage", "model { architecture: ARCHITECTURE_SAGE }", 2, 1024, spec::Loss::kCrossEntropy, 64},
      {"gcn", "model { architecture: ARCHITECTURE_GCN }", 2, 1024, spec::Loss::kCrossEntropy, 64},
      {"features of edges", "model { architecture: ARCHITECTURE_GINE edge_inputs: EDGE_INPUTS_WEIGHTS }", 2, 1024,
       spec::Loss::kCrossEntropy, 64},
      {"a layer a hop", "model { architecture: ARCHITECTURE_SAGE } neighbor_sampling { fan_outs: [ 15, 10, 5 ] }", 3,
       1024, spec::Loss::kCrossEntropy, 64},
      {"what is said stays",
       "model { architecture: ARCHITECTURE_GCN num_layers: 1 } neighbor_sampling { fan_outs: 5 look_ahead: 3 } "
       "batch_size: 7 loss: LOSS_MSE",
       1, 7, spec::Loss::kMse, 3},
  };
  for (const auto& c : kCases) {
    v1::CreateJobRequest request = Minimal();
    v1::JobSpec said;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(c.wire, &said)) << c.why;
    request.mutable_spec()->MergeFrom(said);
    const auto got = FromWire(request);
    ASSERT_TRUE(got.ok()) << c.why << got.status();
    const spec::TrainOptions& train = got->spec.train;
    EXPECT_EQ(train.model.num_layers, c.num_layers) << c.why;
    EXPECT_EQ(train.model.hidden_channels, 64) << c.why;
    EXPECT_EQ(train.batch_size, c.batch_size) << c.why;
    EXPECT_EQ(train.loss, c.loss) << c.why;
    EXPECT_EQ(train.nodes.look_ahead, c.look_ahead) << c.why;
    EXPECT_TRUE(train.nodes.advise_pages) << c.why;
  }
}

TEST(CreateRequestFromWire, NamesTheBadField) {
  using Edit = std::function<void(v1::CreateJobRequest&)>;
  const struct {
    const char* field;
    Edit edit;
  } kCases[] = {
      {"spec", [](auto& r) { r.clear_spec(); }},
      {"job_id", [](auto& r) { r.set_job_id("Bad_Id"); }},
      {"request_id", [](auto& r) { r.set_request_id(std::string(129, 'x')); }},
      {"spec.dataset", [](auto& r) { r.mutable_spec()->clear_dataset(); }},
      {"spec.dataset", [](auto& r) { r.mutable_spec()->set_dataset("zinc"); }},
      {"spec.loss", [](auto& r) { r.mutable_spec()->set_loss(static_cast<v1::JobSpec::Loss>(9)); }},
      {"spec.model.architecture",
       [](auto& r) {
         r.mutable_spec()->mutable_model()->set_architecture(static_cast<v1::ModelSpec::Architecture>(9));
       }},
      {"spec.model.pooling",
       [](auto& r) { r.mutable_spec()->mutable_model()->set_pooling(static_cast<v1::ModelSpec::Pooling>(-1)); }},
      {"spec.optimizer.algorithm",
       [](auto& r) {
         r.mutable_spec()->mutable_optimizer()->set_algorithm(static_cast<v1::OptimizerSpec::Algorithm>(9));
       }},
      {"spec.epochs", [](auto& r) { r.mutable_spec()->set_epochs(-1); }},
      {"spec.batch_size", [](auto& r) { r.mutable_spec()->set_batch_size(65'537); }},
      {"spec.model.hidden_channels", [](auto& r) { r.mutable_spec()->mutable_model()->set_hidden_channels(-1); }},
      {"spec.optimizer.learning_rate",
       [](auto& r) { r.mutable_spec()->mutable_optimizer()->set_learning_rate(std::nan("")); }},
      {"spec.priority", [](auto& r) { r.mutable_spec()->set_priority(101); }},
      {"spec.model.dropout", [](auto& r) { r.mutable_spec()->mutable_model()->set_dropout(1); }},
      {"spec.optimizer.max_grad_norm", [](auto& r) { r.mutable_spec()->mutable_optimizer()->set_max_grad_norm(-1); }},
      {"spec.optimizer.schedule",
       [](auto& r) {
         r.mutable_spec()->mutable_optimizer()->set_schedule(static_cast<v1::OptimizerSpec::Schedule>(9));
       }},
      {"spec.optimizer.warmup_steps", [](auto& r) { r.mutable_spec()->mutable_optimizer()->set_warmup_steps(-1); }},
      {"spec.neighbor_sampling",
       [](auto& r) {
         r.mutable_spec()->mutable_batching();
         r.mutable_spec()->mutable_neighbor_sampling()->add_fan_outs(5);
       }},
      {"spec.model.norm",
       [](auto& r) { r.mutable_spec()->mutable_model()->set_norm(static_cast<v1::ModelSpec::Norm>(9)); }},
      {"spec.model.jumping_knowledge",
       [](auto& r) {
         r.mutable_spec()->mutable_model()->set_jumping_knowledge(static_cast<v1::ModelSpec::JumpingKnowledge>(9));
       }},
      {"spec.model.heads", [](auto& r) { r.mutable_spec()->mutable_model()->set_heads(65); }},
      {"spec.class_weights", [](auto& r) { r.mutable_spec()->add_class_weights(2); }},
      {"spec.link_prediction.decoder",
       [](auto& r) {
         r.mutable_spec()->mutable_link_prediction()->set_decoder(static_cast<v1::LinkPrediction::Decoder>(9));
       }},
      {"spec.link_prediction.negatives",
       [](auto& r) { r.mutable_spec()->mutable_link_prediction()->set_negatives(-1); }},
      {"spec.neighbor_sampling.look_ahead",
       [](auto& r) {
         r.mutable_spec()->mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_SAGE);
         r.mutable_spec()->mutable_neighbor_sampling()->set_look_ahead(65);
       }},
      {"spec.neighbor_sampling.temporal",
       [](auto& r) {
         r.mutable_spec()->mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_SAGE);
         r.mutable_spec()->mutable_neighbor_sampling()->set_temporal(static_cast<v1::TemporalSampling>(9));
       }},
      {"spec.neighbor_sampling.sampler",
       [](auto& r) {
         r.mutable_spec()->mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_SAGE);
         r.mutable_spec()->mutable_neighbor_sampling()->set_sampler(static_cast<v1::SamplerKind>(9));
       }},
      {"spec.graph_cache.policy",
       [](auto& r) {
         r.mutable_spec()->mutable_graph_cache()->set_policy(static_cast<v1::GraphCachePolicy::Policy>(9));
       }},
      {"spec.graph_cache.on_miss",
       [](auto& r) {
         r.mutable_spec()->mutable_graph_cache()->set_on_miss(static_cast<v1::GraphCachePolicy::OnMiss>(9));
       }},
      {"spec.graph_cache.rungs",
       [](v1::CreateJobRequest& r) { r.mutable_spec()->mutable_graph_cache()->set_rungs(65); }},
      {"spec.batching.kind",
       [](v1::CreateJobRequest& r) {
         r.mutable_spec()->mutable_batching()->set_kind(static_cast<v1::Batching::Kind>(9));
       }},
      {"spec.graph_cache.shapes",
       [](auto& r) {
         r.mutable_spec()->mutable_graph_cache()->set_shapes(static_cast<v1::GraphCachePolicy::Shapes>(9));
       }},
      {"spec.graph_cache.freeze_at", [](auto& r) { r.mutable_spec()->mutable_graph_cache()->set_freeze_at(-1); }},
  };
  for (const auto& c : kCases) {
    v1::CreateJobRequest request = Minimal();
    c.edit(request);
    EXPECT_THAT(FieldsOf(Refusal(request)), ElementsAre(c.field));
  }
}

TEST(CreateRequestFromWire, LeavesValuesToTheJobManager) {
  v1::CreateJobRequest request = Minimal();
  request.set_job_id("Bad_Id");
  request.set_request_id(std::string(129, 'x'));
  request.mutable_spec()->set_epochs(-1);
  const auto got = FromWire(request);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(FieldsOf(jobs::CheckRequest(*got)), UnorderedElementsAre("job_id", "request_id", "spec.epochs"));
}

TEST(CreateRequestFromWire, TellsAllBadFieldsAtOnceAndEachOnce) {
  v1::CreateJobRequest request;
  request.set_job_id("Bad");
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_dataset("zinc");
  spec.set_loss(static_cast<v1::JobSpec::Loss>(9));
  spec.set_epochs(-1);
  spec.mutable_model()->set_num_layers(65);
  EXPECT_THAT(FieldsOf(FromWire(request).status()),
              UnorderedElementsAre("job_id", "spec.dataset", "spec.loss", "spec.epochs", "spec.model.num_layers"));
}

TEST(CreateRequestFromWire, AnUnknownEnumSaysWhatIsAccepted) {
  v1::CreateJobRequest request = Minimal();
  request.mutable_spec()->set_loss(static_cast<v1::JobSpec::Loss>(9));
  const auto violations = GetViolations(FromWire(request).status());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_THAT(violations[0].description, HasSubstr("9 is unknown"));
  EXPECT_THAT(violations[0].description, HasSubstr("LOSS_L1, LOSS_MSE, LOSS_CROSS_ENTROPY, LOSS_BCE"));
}

TEST(JobSpec, MetricsAreReadAndEachBadOneNamed) {
  v1::CreateJobRequest request = Minimal();
  for (size_t i = 0; i < spec::kMetricNames.rows.size(); ++i) request.mutable_spec()->add_metrics(v1::METRIC_MAE);
  request.mutable_spec()->set_metrics(1, v1::METRIC_R2);
  EXPECT_THAT(FromWire(request)->spec.train.metrics.at(1), spec::Metric::kR2);
  request.mutable_spec()->set_metrics(2, v1::METRIC_UNSPECIFIED);
  EXPECT_THAT(FieldsOf(Refusal(request)), testing::Contains("spec.metrics[2]"));
  // The list is too long. A request could carry a million metrics.
  request.mutable_spec()->add_metrics(v1::METRIC_MAE);
  EXPECT_THAT(FieldsOf(Refusal(request)), ElementsAre("spec.metrics"));
}

}  // namespace
}  // namespace permafrost::api
