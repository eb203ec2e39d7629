// Describes what a training run does, without torch: the part of a job that train/ understands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/enum_names.h"
#include "base/id.h"
#include "base/status.h"
#include "data/sampling/batching.h"
#include "data/sampling/draw_kind.h"
#include "data/sampling/negative_draw.h"
#include "data/store/cross_validation.h"
#include "data/store/link_split.h"
#include "graphcache/policy.h"
#include "nn/options.h"

namespace permafrost::train {

// A checkpoint comes where either interval says so, at a stop, and at the job's end.
struct CheckpointOptions {
  // Steps between checkpoints. 0: not by steps.
  int64_t every_steps = 0;
  // Seconds between checkpoints, 0..86,400; more where one takes longer than 2 % of that, fewer in a run's first
  // minute. Smaller: less lost when the machine dies, more disk writes. 0: not by time.
  int64_t every_seconds = 60;
  // Checkpoints kept, 1..100; the newest complete one is never deleted.
  int64_t keep = 2;
  bool operator==(const CheckpointOptions&) const = default;
};

// The sampling of a node-level job's batches, and its evaluation.
struct NodeTrainingOptions {
  // Neighbours drawn of each node, hop by hop from the seeds; -1: all. As many as the model has layers. Empty: the
  // whole graph in every step (then batch_size is not used).
  std::vector<int64_t> fan_outs;
  // The same in evaluation; empty: fan_outs.
  std::vector<int64_t> eval_fan_outs;
  bool replace = false;   // draw with replacement
  bool weighted = false;  // draw by edge weight
  // Layer by layer over the whole graph, with every neighbour, outside the graph cache; false: by sampling. Whole-graph
  // jobs are always evaluated over the whole graph.
  bool layer_wise_evaluation = false;
  // Batches that the sampler runs ahead of the step, 1..64; it adapts within 1..this, and they take at most
  // SampledAheadBytes.
  int64_t look_ahead = 64;
  // True: the sampler tells the kernel which pages come next.
  bool advise_pages = true;
  data::SamplerKind sampler = data::SamplerKind::kNeighbor;
  // Each seed has a subgraph of its own. Temporal sampling is disjoint without saying so.
  bool disjoint = false;
  // A seed sees the edges before its time alone: of a link that is the link's; of a node seed_time, without one
  // the node's own where the dataset has them, else the node sees every edge.
  data::TemporalSampling temporal = data::TemporalSampling::kNone;
  std::optional<int64_t> seed_time;  // in the units of the dataset's timestamps

  bool is_temporal() const { return temporal != data::TemporalSampling::kNone; }
  bool operator==(const NodeTrainingOptions&) const = default;
};

// The source of the links that train, validate and test (LinkOptions::given).
inline constexpr EnumNames<bool, 2> kLinkSplitNames{{{{false, "drawn"}, {true, "dataset"}}}};

// The options by which a job on one large graph predicts links, in place of the labels of nodes.
struct LinkOptions {
  bool enabled = false;  // the rest has no meaning without
  // The links of each split are those that the dataset gives (GivenLinksSummary), and so are the negatives of
  // evaluation, of a split that has some. False: `split` draws them.
  bool given = false;
  // Chooses the links that train, validate and test; under temporal sampling the latest test. Its seed also draws the
  // negatives of evaluation, so that jobs of other weights may share them.
  data::LinkSplitOptions split;
  int64_t negatives = 1;         // pairs without an edge beside each link of a training batch, 1..1000
  int64_t eval_negatives = 100;  // beside each link that is evaluated, the same in every epoch, 1..10,000
  data::NegativeSampling sampling = data::NegativeSampling::kUniform;
  nn::LinkScore score = nn::LinkScore::kDot;
  bool operator==(const LinkOptions&) const = default;
};

// The walks that a job of node2vec draws: as torch_geometric.nn.Node2Vec, with the values of its example.
struct Node2VecOptions {
  int64_t walk_length = 20;          // nodes of a walk, 2..1000
  int64_t context_size = 10;         // nodes of a window, 2..walk_length
  int64_t walks_per_node = 10;       // walks that begin in a seed node, 1..1000
  double p = 1, q = 1;               // as data::WalkOptions
  int64_t num_negative_samples = 1;  // walks of random nodes beside each, 1..100
  bool operator==(const Node2VecOptions&) const = default;
};

// Weights that a job begins with in place of drawn ones: those of another job, or of a safetensors file.
enum class JobWeights { kBest, kLast };
inline constexpr EnumNames<JobWeights, 2> kJobWeightsNames{
    {{{JobWeights::kBest, "best"}, {JobWeights::kLast, "last"}}}};
struct InitialWeights {
  // The weights come from one of these, if any.
  JobId job;
  std::string file;
  JobWeights weights = JobWeights::kBest;  // of the job
  // Tensors whose name and shape the model has are taken, and others left. False: they are all the model's, by name and
  // shape.
  bool by_name = false;
  bool given() const { return !job.empty() || !file.empty(); }
  bool operator==(const InitialWeights&) const = default;
};

// The answer of a job whose loss, or a weight, is no longer finite: it fails; or it begins anew at its newest
// checkpoint and skips the batches whose steps made it so (careful_steps.h).
enum class NonFinite { kFail, kRewind };
inline constexpr EnumNames<NonFinite, 2> kNonFiniteNames{
    {{{NonFinite::kFail, "fail"}, {NonFinite::kRewind, "rewind"}}}};

struct TrainOptions {
  DatasetId dataset;
  nn::ModelOptions model;
  nn::OptimizerOptions optimizer;
  nn::Loss loss = nn::Loss::kL1;
  // Weights of the classes in kCrossEntropy and kBce, each > 0; empty: all 1.
  std::vector<double> class_weights;
  // Evaluation reports these, each once, and each measures the loss, or links; the first one chooses the best epoch.
  // Empty: nn::MetricOf(loss), for links kMrr.
  std::vector<nn::Metric> metrics;
  int64_t epochs = 20;      // 1..1,000,000
  int64_t patience = 0;     // epochs without a better validation after which the job ends; 0: it does not, 1..epochs
  int64_t batch_size = 32;  // graphs, seed nodes or links, 1..65,536
  uint64_t seed = 0;
  CheckpointOptions checkpoint;
  graphcache::PolicyOptions graph_cache;
  NodeTrainingOptions nodes;  // of node-level models
  // For sets of small graphs this says which of them meet in a training batch. For one large graph kBudget bounds the
  // rows and edges of each sampled block, in evaluation too; kBalanced is refused.
  data::BatchingOptions batching;
  data::CrossValidation cross_validation;  // of sets of small graphs
  LinkOptions links;                       // of one large graph
  Node2VecOptions node2vec;                // of that model
  InitialWeights init_from;
  // Beginnings of names of parameters that are not trained (nn::TensorSet::Fix).
  std::vector<std::string> fixed_parameters;
  NonFinite non_finite = NonFinite::kFail;
  bool operator==(const TrainOptions&) const = default;
};

// The models of a level: "sage, gcn".
std::string ModelsOf(nn::ModelLevel level, std::string_view separator);

// Options of a job that says no more than its dataset: nn::DefaultsOf the level.
TrainOptions DefaultOptions(nn::ModelLevel level);

// True if a job learns a row for each node from random walks, in place of a model's layers: node2vec.
inline bool Walks(const TrainOptions& options) { return nn::TraitsOf(options.model.architecture).walks; }
// Makes options of one large graph those of a job of node2vec that says nothing else: the values of PyG's example.
void SetNode2VecDefaults(TrainOptions& options);

// True if a job is evaluated layer by layer over the whole graph. That is so if it is asked for, and if the job samples
// batches of links, whose negatives come from anywhere, unless links have times.
bool EvaluatesLayerWise(const TrainOptions& options);

// True if a job is evaluated by no batches of the graph cache: layer by layer, or, if links have times, by blocks of
// which each end of a link has its own.
bool EvaluatesOutsideCache(const TrainOptions& options);

// The metrics that the job's evaluations report, in order; the first decides.
std::vector<nn::Metric> MetricsOf(const TrainOptions& options);

// Adds a violation for each value out of range; fields are named as on the wire, after `prefix` ("spec.").
void Validate(const TrainOptions& options, std::string_view prefix, Violations& violations);

}  // namespace permafrost::train
