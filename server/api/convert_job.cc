#include "api/convert_job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/convert_graph_cache.h"
#include "api/convert_job_life.h"
#include "api/convert_job_verbs.h"
#include "api/convert_metrics.h"
#include "api/convert_neighbors.h"
#include "api/convert_optimizer.h"
#include "api/convert_progress.h"
#include "api/convert_time.h"
#include "api/resource_name.h"
#include "api/text.h"
#include "api/wire_enum.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

using JobStates = WireEnum<v1::Job::State, jobs::kJobStateNames>;
using NonFinites = WireEnum<v1::JobSpec::NonFinite, spec::kNonFiniteNames>;
using Losses = WireEnum<v1::JobSpec::Loss, spec::kLossNames>;
using Architectures = WireEnum<v1::ModelSpec::Architecture, spec::kArchitectureNames>;
using Aggregations = WireEnum<v1::ModelSpec::Aggregation, spec::kAggregationNames>;
using Lowerings = WireEnum<v1::ModelSpec::Lowering, spec::kLoweringNames>;
using Precisions = WireEnum<v1::ModelSpec::Precision, spec::kPrecisionNames>;
using JumpingKnowledges = WireEnum<v1::ModelSpec::JumpingKnowledge, spec::kJumpingKnowledgeNames>;
using NodeInputs = WireEnum<v1::ModelSpec::NodeInputs, spec::kNodeInputsNames>;
using EdgeInputs = WireEnum<v1::ModelSpec::EdgeInputs, spec::kEdgeInputsNames>;
using Norms = WireEnum<v1::ModelSpec::Norm, spec::kNormNames>;
using Poolings = WireEnum<v1::ModelSpec::Pooling, spec::kPoolingNames>;
using Batchings = WireEnum<v1::Batching::Kind, spec::kBatchingNames>;
using NegativeSamplings = WireEnum<v1::LinkPrediction::NegativeSampling, spec::kNegativeSamplingNames>;
using LinkSplits = WireEnum<v1::LinkPrediction::Split, spec::kLinkSplitNames>;
using Decoders = WireEnum<v1::LinkPrediction::Decoder, spec::kLinkScoreNames>;
using Artifacts = WireEnum<v1::ExportJobRequest::Artifact, jobs::kArtifactNames>;

// proto3's zero is "not set": the domain's default stays.
template <class Wire, class Domain>
void ReadNumber(Wire wire, Domain& out) {
  if (wire != 0) out = wire;
}

spec::NodeTrainingOptions NodesFromWire(const v1::NeighborSampling& wire, Violations& violations) {
  spec::NodeTrainingOptions nodes;
  nodes.fan_outs.assign(wire.fan_outs().begin(), wire.fan_outs().end());
  nodes.eval_fan_outs.assign(wire.eval_fan_outs().begin(), wire.eval_fan_outs().end());
  ReadDraws(wire, "spec.neighbor_sampling.", nodes, violations);
  if (wire.has_seed_time()) nodes.seed_time = wire.seed_time();
  nodes.layer_wise_evaluation = wire.layer_wise_evaluation();
  ReadNumber(wire.look_ahead(), nodes.look_ahead);
  nodes.advise_pages = !wire.no_page_advice();
  return nodes;
}

void NodesToWire(const spec::NodeTrainingOptions& nodes, v1::NeighborSampling& wire) {
  wire.mutable_fan_outs()->Add(nodes.fan_outs.begin(), nodes.fan_outs.end());
  wire.mutable_eval_fan_outs()->Add(nodes.eval_fan_outs.begin(), nodes.eval_fan_outs.end());
  DrawsToWire(nodes, wire);
  if (nodes.seed_time) wire.set_seed_time(*nodes.seed_time);
  wire.set_layer_wise_evaluation(nodes.layer_wise_evaluation);
  wire.set_look_ahead(static_cast<int32_t>(nodes.look_ahead));
  wire.set_no_page_advice(!nodes.advise_pages);
}

spec::LinkOptions LinksFromWire(const v1::LinkPrediction& wire, bool dataset_gives, Violations& violations) {
  spec::LinkOptions links{.enabled = true, .given = dataset_gives};
  LinkSplits::Read(wire.split(), "spec.link_prediction.split", links.given, violations);
  for (const auto& [present, field] :
       {std::pair(wire.has_valid_part(), "valid_part"), std::pair(wire.has_test_part(), "test_part")}) {
    if (!links.given || !present) continue;
    violations.Add(absl::StrCat("spec.link_prediction.", field),
                   "is given, and the dataset divides the links; accepted: with split drawn");
  }
  if (wire.has_valid_part()) links.split.valid_part = wire.valid_part();
  if (wire.has_test_part()) links.split.test_part = wire.test_part();
  links.split.seed = wire.split_seed();
  ReadNumber(wire.negatives(), links.negatives);
  ReadNumber(wire.eval_negatives(), links.eval_negatives);
  NegativeSamplings::Read(wire.negative_sampling(), "spec.link_prediction.negative_sampling", links.sampling,
                          violations);
  Decoders::Read(wire.decoder(), "spec.link_prediction.decoder", links.score, violations);
  return links;
}

void LinksToWire(const spec::LinkOptions& links, v1::LinkPrediction& wire) {
  wire.set_split(LinkSplits::ToWire(links.given));
  if (!links.given) {
    wire.set_valid_part(links.split.valid_part);
    wire.set_test_part(links.split.test_part);
  }
  wire.set_split_seed(links.split.seed);
  wire.set_negatives(links.negatives);
  wire.set_eval_negatives(links.eval_negatives);
  wire.set_negative_sampling(NegativeSamplings::ToWire(links.sampling));
  wire.set_decoder(Decoders::ToWire(links.score));
}

spec::BatchingOptions BatchingFromWire(const v1::Batching& wire, Violations& violations) {
  spec::BatchingOptions batching;
  Batchings::Read(wire.kind(), "spec.batching.kind", batching.kind, violations);
  batching.max_nodes = wire.max_nodes();
  batching.max_edges = wire.max_edges();
  return batching;
}

void BatchingToWire(const spec::BatchingOptions& batching, v1::Batching& wire) {
  wire.set_kind(Batchings::ToWire(batching.kind));
  wire.set_max_nodes(batching.max_nodes);
  wire.set_max_edges(batching.max_edges);
}

spec::Node2VecOptions Node2VecFromWire(const v1::Node2Vec& wire) {
  spec::Node2VecOptions walks;
  ReadNumber(wire.walk_length(), walks.walk_length);
  ReadNumber(wire.context_size(), walks.context_size);
  ReadNumber(wire.walks_per_node(), walks.walks_per_node);
  ReadNumber(wire.p(), walks.p);
  ReadNumber(wire.q(), walks.q);
  ReadNumber(wire.num_negative_samples(), walks.num_negative_samples);
  return walks;
}

void Node2VecToWire(const spec::Node2VecOptions& walks, v1::Node2Vec& wire) {
  wire.set_walk_length(walks.walk_length);
  wire.set_context_size(walks.context_size);
  wire.set_walks_per_node(walks.walks_per_node);
  wire.set_p(walks.p);
  wire.set_q(walks.q);
  wire.set_num_negative_samples(walks.num_negative_samples);
}

// Guesses for a dataset that is not known: the level of a model that has one alone, what else the spec says, or the
// level that the model had first.
spec::ModelLevel GuessLevel(const v1::JobSpec& wire) {
  const auto architecture = Architectures::FromWire(wire.model().architecture());
  if (architecture && !spec::TraitsOf(*architecture).of_nodes) return spec::ModelLevel::kGraph;
  // A budget bounds sampled blocks, too.
  const bool bounds_blocks = wire.batching().kind() == v1::Batching::KIND_BUDGET && wire.has_neighbor_sampling();
  if ((wire.has_batching() && !bounds_blocks) || wire.has_cross_validation()) return spec::ModelLevel::kGraph;
  if (wire.has_neighbor_sampling() || wire.has_link_prediction() || wire.has_node2vec() ||
      wire.model().edge_inputs() != 0) {
    return spec::ModelLevel::kNode;
  }
  return architecture ? spec::FirstLevelOf(*architecture) : spec::ModelLevel::kGraph;
}

void ReadModel(const v1::ModelSpec& wire, spec::ModelOptions& model, Violations& violations) {
  Architectures::Read(wire.architecture(), "spec.model.architecture", model.architecture, violations);
  Poolings::Read(wire.pooling(), "spec.model.pooling", model.pooling, violations);
  Aggregations::Read(wire.aggregation(), "spec.model.aggregation", model.aggregation, violations);
  Lowerings::Read(wire.lowering(), "spec.model.lowering", model.lowering, violations);
  Precisions::Read(wire.precision(), "spec.model.precision", model.precision, violations);
  Norms::Read(wire.norm(), "spec.model.norm", model.norm, violations);
  JumpingKnowledges::Read(wire.jumping_knowledge(), "spec.model.jumping_knowledge", model.jumping_knowledge,
                          violations);
  ReadNumber(wire.hidden_channels(), model.hidden_channels);
  ReadNumber(wire.num_layers(), model.num_layers);
  ReadNumber(wire.heads(), model.heads);
  model.dropout = wire.dropout();
  model.input_dropout = wire.input_dropout();
  model.residual = wire.residual();
  model.virtual_node = wire.virtual_node();
  model.normalize_features = wire.normalize_features();
  NodeInputs::Read(wire.node_inputs(), "spec.model.node_inputs", model.node_inputs, violations);
  EdgeInputs::Read(wire.edge_inputs(), "spec.model.edge_inputs", model.edge_inputs, violations);
}

void ModelToWire(const spec::ModelOptions& model, v1::ModelSpec& wire) {
  wire.set_architecture(Architectures::ToWire(model.architecture));
  wire.set_hidden_channels(static_cast<int32_t>(model.hidden_channels));
  wire.set_num_layers(static_cast<int32_t>(model.num_layers));
  wire.set_pooling(Poolings::ToWire(model.pooling));
  wire.set_aggregation(Aggregations::ToWire(model.aggregation));
  wire.set_lowering(Lowerings::ToWire(model.lowering));
  wire.set_precision(Precisions::ToWire(model.precision));
  wire.set_dropout(model.dropout);
  wire.set_input_dropout(model.input_dropout);
  wire.set_heads(static_cast<int32_t>(model.heads));
  wire.set_norm(Norms::ToWire(model.norm));
  wire.set_residual(model.residual);
  wire.set_jumping_knowledge(JumpingKnowledges::ToWire(model.jumping_knowledge));
  wire.set_virtual_node(model.virtual_node);
  wire.set_normalize_features(model.normalize_features);
  wire.set_node_inputs(NodeInputs::ToWire(model.node_inputs));
  wire.set_edge_inputs(EdgeInputs::ToWire(model.edge_inputs));
}

spec::JobSpec SpecFromWire(const v1::JobSpec& wire, const spec::PolicyOptions& default_graph_cache,
                           const LevelOf& level_of, Violations& violations) {
  spec::JobSpec spec;
  spec::TrainOptions& train = spec.train;
  auto dataset = ParseDatasetName("spec.dataset", wire.dataset());
  if (!dataset.ok()) violations.AddMissing(dataset.status());
  const auto known = dataset.ok() && level_of ? level_of(*dataset) : std::nullopt;
  train = spec::DefaultOptions(known ? known->level : GuessLevel(wire));
  if (dataset.ok()) train.dataset = *std::move(dataset);
  train.nodes = NodesFromWire(wire.neighbor_sampling(), violations);
  train.batching = BatchingFromWire(wire.batching(), violations);
  const auto hops = static_cast<int64_t>(train.nodes.fan_outs.size());
  if (train.model.level == spec::ModelLevel::kNode) ReadNumber(hops, train.model.num_layers);
  if (wire.model().architecture() == v1::ModelSpec::ARCHITECTURE_NODE2VEC) spec::SetNode2VecDefaults(train);
  ReadModel(wire.model(), train.model, violations);
  // Rows that are all alike would be what batch norm sees. The job says so, since those of older servers have none.
  if (train.model.node_inputs == spec::NodeInputs::kAuto && known && known->bare_nodes) {
    train.model.node_inputs = spec::NodeInputs::kDegree;
  }
  train.node2vec = Node2VecFromWire(wire.node2vec());
  if (wire.has_node2vec() && !spec::Walks(train)) {
    violations.Add("spec.node2vec",
                   absl::StrCat("is given for ", AbslView(spec::kArchitectureNames.Name(train.model.architecture)),
                                "; accepted: for architecture node2vec"));
  }
  ReadOptimizer(wire.optimizer(), train.optimizer, violations);
  ReadInitFrom(wire.init_from(), train.init_from, violations);
  train.fixed_parameters.assign(wire.fixed_parameters().begin(), wire.fixed_parameters().end());
  if (wire.has_link_prediction()) {
    train.links = LinksFromWire(wire.link_prediction(), known && known->gives_links, violations);
    train.loss = spec::Loss::kBce;
  }
  Losses::Read(wire.loss(), "spec.loss", train.loss, violations);
  train.class_weights.assign(wire.class_weights().begin(), wire.class_weights().end());
  train.metrics = MetricsFromWire(wire.metrics(), "spec.metrics", violations);
  train.cross_validation = {.folds = wire.cross_validation().folds(),
                            .fold = wire.cross_validation().fold(),
                            .seed = wire.cross_validation().seed()};
  ReadNumber(wire.epochs(), train.epochs);
  train.patience = wire.patience();
  // A budget alone says how many graphs meet. It does not say how many seeds sampled blocks have.
  if (train.batching.kind == spec::BatchingKind::kBudget && train.model.level == spec::ModelLevel::kGraph) {
    train.batch_size = spec::kMaxBatchSize;
  }
  ReadNumber(wire.batch_size(), train.batch_size);
  train.seed = wire.seed();
  NonFinites::Read(wire.non_finite(), "spec.non_finite", train.non_finite, violations);
  train.checkpoint.every_steps = wire.checkpoint().every_steps();
  if (wire.checkpoint().has_every_seconds()) train.checkpoint.every_seconds = wire.checkpoint().every_seconds();
  ReadNumber(wire.checkpoint().keep(), train.checkpoint.keep);
  train.graph_cache =
      GraphCachePolicyFromWire(wire.graph_cache(), "spec.graph_cache.", default_graph_cache, violations);
  spec.priority = wire.priority();
  spec.limits = {.max_runtime = MaxRuntimeFromWire(wire, "spec.max_runtime", violations),
                 .deadline = DeadlineFromWire(wire, "spec.deadline", violations)};
  spec.max_retries = wire.max_retries();
  return spec;
}

void SpecToWire(const spec::JobSpec& spec, v1::JobSpec& wire) {
  const spec::TrainOptions& train = spec.train;
  wire.set_dataset(FormatDatasetName(train.dataset));
  ModelToWire(train.model, *wire.mutable_model());
  OptimizerToWire(train.optimizer, *wire.mutable_optimizer());
  if (train.init_from.given()) InitFromToWire(train.init_from, *wire.mutable_init_from());
  for (const std::string& prefix : train.fixed_parameters) wire.add_fixed_parameters(ValidUtf8(prefix));
  wire.set_loss(Losses::ToWire(train.loss));
  wire.mutable_class_weights()->Add(train.class_weights.begin(), train.class_weights.end());
  for (const spec::Metric metric : train.metrics) wire.add_metrics(MetricToWire(metric));
  if (train.cross_validation.folds > 0) {
    v1::CrossValidation& folds = *wire.mutable_cross_validation();
    folds.set_folds(train.cross_validation.folds);
    folds.set_fold(train.cross_validation.fold);
    folds.set_seed(train.cross_validation.seed);
  }
  if (train.links.enabled) LinksToWire(train.links, *wire.mutable_link_prediction());
  if (spec::Walks(train)) Node2VecToWire(train.node2vec, *wire.mutable_node2vec());
  wire.set_epochs(train.epochs);
  wire.set_patience(train.patience);
  wire.set_batch_size(train.batch_size);
  wire.set_seed(train.seed);
  wire.set_non_finite(NonFinites::ToWire(train.non_finite));
  wire.set_priority(spec.priority);
  LimitsToWire(spec.limits, wire);
  wire.set_max_retries(spec.max_retries);
  wire.mutable_checkpoint()->set_every_steps(train.checkpoint.every_steps);
  wire.mutable_checkpoint()->set_every_seconds(train.checkpoint.every_seconds);
  wire.mutable_checkpoint()->set_keep(static_cast<int32_t>(train.checkpoint.keep));
  *wire.mutable_graph_cache() = GraphCachePolicyToWire(train.graph_cache);
  if (train.model.level == spec::ModelLevel::kNode) {
    NodesToWire(train.nodes, *wire.mutable_neighbor_sampling());
    if (train.batching != spec::BatchingOptions()) BatchingToWire(train.batching, *wire.mutable_batching());
  } else {
    BatchingToWire(train.batching, *wire.mutable_batching());
  }
}

}  // namespace

absl::StatusOr<jobs::CreateRequest> CreateRequestFromWire(const v1::CreateJobRequest& wire,
                                                          const spec::PolicyOptions& default_graph_cache,
                                                          const LevelOf& level_of) {
  Violations violations;
  jobs::CreateRequest request;
  request.id = JobId(wire.job_id());
  request.request_id = wire.request_id();
  request.validate_only = wire.validate_only();
  request.labels = LabelsFromWire(wire.labels());
  if (wire.has_spec()) {
    request.spec = SpecFromWire(wire.spec(), default_graph_cache, level_of, violations);
  } else {
    violations.Add("spec", "is missing; accepted: a JobSpec with at least its dataset");
  }
  // A request that says something is the job manager's to check. One that cannot be read never gets there: what it
  // would find is told here too, so that the answer has every bad field.
  if (!violations.empty() && wire.has_spec()) violations.AddMissing(jobs::CheckRequest(request));
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return request;
}

v1::Job JobToWire(const jobs::Job& job) {
  v1::Job wire;
  wire.set_name(FormatJobName(job.id));
  SpecToWire(job.spec, *wire.mutable_spec());
  wire.mutable_labels()->insert(job.labels.begin(), job.labels.end());
  wire.set_etag(jobs::EtagOf(job));
  wire.set_state(JobStates::ToWire(job.state));
  wire.set_pausing(job.pausing);
  SetTime(job.create_time, [&wire] { return wire.mutable_create_time(); });
  SetTime(job.start_time, [&wire] { return wire.mutable_start_time(); });
  SetTime(job.end_time, [&wire] { return wire.mutable_end_time(); });
  LifeToWire(job, wire);
  ProgressToWire(job.progress, *wire.mutable_progress());
  const std::vector<spec::Metric> metrics = spec::MetricsOf(job.spec.train);
  for (const train::EpochMetrics& epoch : job.epochs) EpochToWire(epoch, metrics, *wire.add_epochs());
  if (job.result) ResultToWire(*job.result, metrics, *wire.mutable_result());
  wire.set_resumes(job.resumes);
  for (const std::string& note : job.notes) wire.add_notes(ValidUtf8(note));
  wire.set_last_error(ValidUtf8(job.trouble.error));
  SetTime(job.trouble.retry_time, [&wire] { return wire.mutable_retry_time(); });
  return wire;
}

std::vector<jobs::JobState> JobStatesFromWire(const v1::ListJobsRequest& wire, Violations& violations) {
  std::vector<jobs::JobState> states;
  // Before the loop: a request has room for a million of them.
  if (static_cast<std::size_t>(wire.states_size()) > JobStates::size()) {
    violations.Add("states", absl::StrCat("has ", wire.states_size(), " entries; accepted: at most the ",
                                          JobStates::size(), " states there are, each once"));
    return states;
  }
  for (int i = 0; i < wire.states_size(); ++i) {
    if (const auto state = JobStates::FromWire(wire.states(i))) {
      states.push_back(*state);
    } else {
      const int number = static_cast<int>(wire.states(i));
      violations.Add(absl::StrCat("states[", i, "]"),
                     absl::StrCat(number, " is no state; accepted: ", JobStates::Accepted()));
    }
  }
  return states;
}

jobs::Artifact ArtifactFromWire(int artifact, Violations& violations) {
  jobs::Artifact out = jobs::Artifact::kBestWeights;
  Artifacts::Read(artifact, "artifact", out, violations);
  return out;
}

}  // namespace permafrost::api
