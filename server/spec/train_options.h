// Describes what a training run does, without torch. This is the part of a job that train/ understands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "base/id.h"
#include "base/status.h"
#include "spec/field.h"
#include "spec/loss.h"
#include "spec/model.h"
#include "spec/optimizer.h"
#include "spec/policy.h"
#include "spec/sampling.h"

namespace permafrost::spec {

// A checkpoint is written when one of the two intervals has passed, when the job is stopped, and when the job ends.
struct CheckpointOptions {
  // Steps between checkpoints. 0: no checkpoint is written because of the number of steps.
  int64_t every_steps = 0;
  // Seconds between checkpoints, 0..86,400. 0: no checkpoint is written because of the time. If writing a checkpoint
  // takes longer than 2 % of the interval, the interval grows. In a run's first minute, the interval is shorter. A
  // smaller value loses less work when the machine dies, and writes to disk more often.
  int64_t every_seconds = 60;
  // Number of checkpoints kept, 1..100. The newest complete one is never deleted.
  int64_t keep = 2;
  bool operator==(const CheckpointOptions&) const = default;
};

template <class F>
void VisitFields(Options<CheckpointOptions>, F&& f) {
  using C = CheckpointOptions;
  f({.name = "every_steps",
     .accepts = kNotNegative,
     .flag = "--checkpoint-every",
     .help = "Steps between checkpoints; 0: not by steps ({})",
     .value = "STEPS"},
    &C::every_steps);
  f({.name = "every_seconds",
     .accepts = Between(0, 86'400),
     .flag = "--checkpoint-seconds",
     .help = "Seconds between checkpoints, 0..86400; 0: not by time ({})",
     .value = "SECONDS"},
    &C::every_seconds);
  f({.name = "keep", .accepts = Between(1, 100), .flag = "--checkpoint-keep", .help = "Checkpoints kept, 1..100 ({})"},
    &C::keep);
}

// How a node-level job samples its batches, and how it is evaluated.
struct NodeTrainingOptions {
  // The number of neighbours drawn for each node: one entry per hop from the seeds, that is, per layer. -1: all
  // neighbours. If empty, every step uses the whole graph and ignores batch_size.
  std::vector<int64_t> fan_outs;
  // The fan-outs of evaluation. Empty: fan_outs.
  std::vector<int64_t> eval_fan_outs;
  bool replace = false;   // true: neighbours are drawn with replacement
  bool weighted = false;  // true: neighbours are drawn in proportion to edge weight
  // True: evaluation computes layer by layer over the whole graph, with every neighbour, outside the graph cache.
  // False: evaluation samples neighbours. Whole-graph jobs are always evaluated over the whole graph.
  bool layer_wise_evaluation = false;
  // The most batches that the sampler prepares ahead of the step, 1..64. The sampler adapts the actual number within
  // 1..look_ahead. The prepared batches take at most SampledAheadBytes of memory.
  int64_t look_ahead = 64;
  // True: the sampler tells the kernel which pages it needs next.
  bool advise_pages = true;
  SamplerKind sampler = SamplerKind::kNeighbor;
  // True: each seed has a subgraph of its own. Temporal sampling is always disjoint, whatever this field says.
  bool disjoint = false;
  // Under temporal sampling, a seed sees only edges before the seed's time. A link's time is its timestamp. A node's
  // time is seed_time, or else the node's time in the dataset. A node that has neither sees every edge.
  TemporalSampling temporal = TemporalSampling::kNone;
  std::optional<int64_t> seed_time;  // in the units of the dataset's timestamps

  bool is_temporal() const { return temporal != TemporalSampling::kNone; }
  bool operator==(const NodeTrainingOptions&) const = default;
};

template <class F>
void VisitFields(Options<NodeTrainingOptions>, F&& f) {
  using N = NodeTrainingOptions;
  f({.name = "fan_outs",
     .needs = {Need::kNeighbors},
     .flag = "--fan-out",
     .help = "One large graph: neighbours drawn of each node, hop by hop (default: the whole graph a step)",
     .value = "N|all,..."},
    &N::fan_outs);
  f({.name = "eval_fan_outs",
     .needs = {Need::kSampling},
     .flag = "--eval-fan-out",
     .help = "The same in evaluation (default: as --fan-out)",
     .value = "N|all,..."},
    &N::eval_fan_outs);
  f({.name = "replace", .needs = {Need::kSampling}, .flag = "--replace", .help = "Draw neighbours with replacement"},
    &N::replace);
  f({.name = "weighted", .needs = {Need::kSampling}, .flag = "--weighted", .help = "Draw neighbours by edge weight"},
    &N::weighted);
  f({.name = "disjoint",
     .needs = {Need::kSampling},
     .flag = "--disjoint",
     .help = "Each seed has a subgraph of its own, and shares no node with another"},
    &N::disjoint);
  f({.name = "temporal",
     .needs = {Need::kSampling},
     .flag = "--temporal",
     .help = "Draw edges before a seed's time alone, any of them or the latest; disjoint (default: timestamps are not "
             "read)"},
    &N::temporal, kTemporalSamplingNames);
  f({.name = "seed_time",
     .needs = {Need::kSampling},
     .flag = "--seed-time",
     .help = "With --temporal: the time of every seed node, as the dataset's timestamps (default: each node's own "
             "where the dataset has them, else after every edge)",
     .value = "T"},
    &N::seed_time);
  f({.name = "sampler",
     .needs = {Need::kSampling},
     .flag = "--sampler",
     .help = "How neighbours are drawn: labor shares draws between the nodes of a hop, and finds fewer nodes ({})"},
    &N::sampler, kSamplerKindNames);
  f({.name = "layer_wise_evaluation",
     .needs = {Need::kSampling, Need::kLayers},
     .flag = "--layer-wise-eval",
     .help = "Evaluate layer by layer over the whole graph, not by samples"},
    &N::layer_wise_evaluation);
  f({.name = "look_ahead",
     .accepts = Between(1, 64),
     .needs = {Need::kSampling},
     .flag = "--look-ahead",
     .help = "Batches sampled ahead of the step, 1..64 ({})"},
    &N::look_ahead);
  f({.name = "no_page_advice",
     .stored = "advise_pages",
     .needs = {Need::kSampling},
     .inverted = true,
     .flag = "--no-page-advice",
     .help = "Do not tell the kernel which pages come next"},
    &N::advise_pages);
}

// Names for the values of LinkOptions::given: the split of the links is drawn at random, or given by the dataset.
inline constexpr EnumNames<bool, 2> kLinkSplitNames{{{{false, "drawn"}, {true, "dataset"}}}};

// The options of a job on one large graph that predicts links instead of node labels.
struct LinkOptions {
  bool enabled = false;  // false: the other fields have no meaning
  // True: the dataset gives the links of each split (GivenLinksSummary), and for some splits also the negatives of
  // evaluation. False: `split` draws the links.
  bool given = false;
  // Says how the links are split. Under temporal sampling, the latest links are the test split. The negatives of
  // evaluation are drawn with split.seed and not with TrainOptions::seed, so that jobs with different initial weights
  // can share them.
  LinkSplitOptions split;
  int64_t negatives = 1;         // negatives (pairs without an edge) per link of a training batch, 1..1000
  int64_t eval_negatives = 100;  // negatives for each evaluated link, the same ones in every epoch, 1..10,000
  NegativeSampling sampling = NegativeSampling::kUniform;
  LinkScore score = LinkScore::kDot;
  bool operator==(const LinkOptions&) const = default;
};

template <class F>
void VisitFields(Options<LinkOptions>, F&& f) {
  using L = LinkOptions;
  f({.name = "enabled",
     .only_stored = true,
     .flag = "--link-prediction",
     .help = "Predict the links of one large graph, not the labels of its nodes; each flag of links says so too"},
    &L::enabled);
  f({.name = "split",
     .stored = "given",
     .flag = "--link-split",
     .help = "Links: the dataset's split and negatives, or one drawn of all edges (default dataset where it has one)"},
    &L::given, kLinkSplitNames);
  f({.name = "split", .inlined = Inline::kOnWire}, &L::split);
  f({.name = "negatives",
     .accepts = Between(1, 1000),
     .flag = "--negatives",
     .help = "Links: pairs without an edge beside each in training, 1..1000; node2vec: walks of random\nnodes beside "
             "each, 1..100 ({})"},
    &L::negatives);
  f({.name = "eval_negatives",
     .accepts = Between(1, 10'000),
     .flag = "--eval-negatives",
     .help = "Links: the same in evaluation, 1..10000 ({})"},
    &L::eval_negatives);
  f({.name = "negative_sampling",
     .stored = "sampling",
     .flag = "--negative-sampling",
     .help = "Links: how targets without an edge are drawn: evenly, or as often as they have edges ({})"},
    &L::sampling, kNegativeSamplingNames);
  f({.name = "decoder",
     .stored = "score",
     .flag = "--decoder",
     .help = "Links: dot product of two nodes, or an MLP of their product ({})"},
    &L::score, kLinkScoreNames);
}

// The walks that a node2vec job draws, as torch_geometric.nn.Node2Vec does. The defaults are those of PyG's example.
struct Node2VecOptions {
  int64_t walk_length = 20;          // nodes in a walk, 2..1000
  int64_t context_size = 10;         // nodes in a window, 2..walk_length
  int64_t walks_per_node = 10;       // walks that begin at each seed node, 1..1000
  double p = 1, q = 1;               // see WalkOptions
  int64_t num_negative_samples = 1;  // negative walks, of random nodes, for each walk, 1..100
  bool operator==(const Node2VecOptions&) const = default;
};

template <class F>
void VisitFields(Options<Node2VecOptions>, F&& f) {
  using N = Node2VecOptions;
  f({.name = "walk_length",
     .accepts = Between(2, 1000),
     .flag = "--walk-length",
     .help = "node2vec: nodes of a walk, 2..1000 ({})"},
    &N::walk_length);
  f({.name = "context_size", .flag = "--context-size", .help = "node2vec: nodes of a window, 2..walk length ({})"},
    &N::context_size);
  f({.name = "walks_per_node",
     .accepts = Between(1, 1000),
     .flag = "--walks-per-node",
     .help = "node2vec: walks from each node an epoch, 1..1000 ({})"},
    &N::walks_per_node);
  f({.name = "p", .accepts = kPositive, .flag = "--p", .help = "node2vec: a walk goes back with weight 1/p ({})"},
    &N::p);
  f({.name = "q", .accepts = kPositive, .flag = "--q", .help = "node2vec: a walk goes farther with weight 1/q ({})"},
    &N::q);
  // This field has the flag --negatives, like LinkOptions::negatives.
  f({.name = "num_negative_samples", .accepts = Between(1, 100)}, &N::num_negative_samples);
}

// The weights of an earlier job from which training starts. kBest: the weights of the job's best epoch. kLast: the
// job's last weights.
enum class JobWeights { kBest, kLast };
inline constexpr EnumNames<JobWeights, 2> kJobWeightsNames{
    {{{JobWeights::kBest, "best"}, {JobWeights::kLast, "last"}}}};
struct InitialWeights {
  // Training starts from the weights of this job or of this safetensors file, instead of random weights. At most one
  // of the two fields is set.
  JobId job;
  std::string file;
  JobWeights weights = JobWeights::kBest;  // the weights of `job` to take
  // True: takes only the tensors that match a tensor of the model by name and shape, and ignores the rest. False:
  // every tensor must match.
  bool by_name = false;
  bool given() const { return !job.empty() || !file.empty(); }
  bool operator==(const InitialWeights&) const = default;
};

template <class F>
void VisitFields(Options<InitialWeights>, F&& f) {
  using W = InitialWeights;
  f({.name = "job",
     .flag = "--init-from",
     .help = "Begin with the weights of this job; rows of single nodes go to the nodes of the same names",
     .value = "JOB"},
    &W::job);
  f({.name = "weights",
     .flag = "--init-weights",
     .help = "With --init-from: those of its best epoch, or its last ones ({})",
     .value = "WEIGHTS"},
    &W::weights, kJobWeightsNames);
  f({.name = "file",
     .flag = "--init-file",
     .help = "Begin with the weights of this safetensors file, below an import root of the server",
     .value = "FILE"},
    &W::file);
  f({.name = "by_name",
     .flag = "--init-by-name",
     .help = "Take the weights whose name and shape fit, and leave the others (default: all must fit)"},
    &W::by_name);
}

// The reaction of a job when its loss or one of its weights is no longer finite. kRewind goes back to the newest
// checkpoint and skips the batches whose steps gave non-finite values (train/loop/state_aside.h).
enum class NonFinite { kFail, kRewind };
inline constexpr EnumNames<NonFinite, 2> kNonFiniteNames{
    {{{NonFinite::kFail, "fail"}, {NonFinite::kRewind, "rewind"}}}};

struct TrainOptions {
  DatasetId dataset;
  ModelOptions model;
  OptimizerOptions optimizer;
  Loss loss = Loss::kL1;
  // Class weights for kCrossEntropy and kBce, each > 0. Empty: all 1.
  std::vector<double> class_weights;
  // The metrics that evaluation reports, each at most once. Each metric must suit the loss or, for links, link
  // prediction. The first one chooses the best epoch. Empty: the metric of the loss (LossTraits), or kMrr for links.
  std::vector<Metric> metrics;
  int64_t epochs = 20;  // 1..1,000,000
  // The job ends after this many epochs in a row without a new best validation metric, 0..1,000,000. 0: the job
  // trains all epochs.
  int64_t patience = 0;
  int64_t batch_size = 32;  // graphs, seed nodes or links, 1..65,536
  uint64_t seed = 0;
  CheckpointOptions checkpoint;
  PolicyOptions graph_cache;
  NodeTrainingOptions nodes;  // for node-level models
  // For a set of small graphs, chooses the graphs that form a training batch. For one large graph, kBudget bounds the
  // nodes and edges of each sampled block, in training and in evaluation. kBalanced is refused for one large graph.
  BatchingOptions batching;
  CrossValidation cross_validation;  // for sets of small graphs
  LinkOptions links;                 // for one large graph
  Node2VecOptions node2vec;          // for architecture node2vec
  InitialWeights init_from;
  // Parameters whose names start with one of these prefixes are not trained (nn::TensorSet::Fix).
  std::vector<std::string> fixed_parameters;
  NonFinite non_finite = NonFinite::kFail;
  // Number of daemons that train the job together, 1..64. Each daemon trains on a share of every batch.
  int64_t replicas = 1;
  int64_t min_replicas = 0;  // the fewest daemons that the job trains with; 0: replicas
  // The precision to which a daemon rounds gradients before it sends them. Gradients are summed in float32, and each
  // sum is rounded again before it is sent.
  Precision exchange_precision = Precision::kFloat32;
  bool operator==(const TrainOptions&) const = default;
};

template <class F>
void VisitFields(Options<TrainOptions>, F&& f) {
  using T = TrainOptions;
  f({.name = "dataset", .flag = "--dataset", .help = "Dataset to train on", .value = "NAME"}, &T::dataset);
  f({.name = "model"}, &T::model);
  f({.name = "optimizer"}, &T::optimizer);
  f({.name = "loss", .flag = "--loss", .help = "Loss ({})"}, &T::loss, kLossNames);
  f({.name = "class_weights",
     .needs = {Need::kLabels},
     .flag = "--class-weights",
     .help = "Weight of each class, for cross-entropy and bce",
     .value = "X,..."},
    &T::class_weights);
  f({.name = "metrics",
     .flag = "--metrics",
     .help = "What evaluation reports; the first one chooses the best epoch: mae, rmse, r2 for l1 and mse; accuracy, "
             "f1-macro, f1-micro, roc-auc, average-precision for the others; of links roc-auc, average-precision, mrr, "
             "hits-at-10, -20, -50, -100 (default: mae; accuracy for cross-entropy; roc-auc for bce; mrr for links)",
     .value = "METRIC,..."},
    &T::metrics, kMetricNames);
  f({.name = "epochs",
     .accepts = Between(1, 1'000'000),
     .flag = "--epochs",
     .help = "Passes over the train split ({})"},
    &T::epochs);
  f({.name = "patience",
     .accepts = Between(0, 1'000'000),
     .flag = "--patience",
     .help = "End after so many epochs without a better validation (default: train all epochs)"},
    &T::patience);
  f({.name = "non_finite",
     .flag = "--non-finite",
     .help =
         "Once a loss or a weight is not finite: fail, or go back to the newest checkpoint and skip\nthe batches that "
         "made it so ({})"},
    &T::non_finite, kNonFiniteNames);
  f({.name = "batch_size",
     .accepts = Between(1, kMaxBatchSize),
     .flag = "--batch-size",
     .help =
         "Graphs a batch, or seed nodes or links of one large graph ({};\nwith --batching budget as many graphs as it "
         "holds)"},
    &T::batch_size);
  f({.name = "seed", .flag = "--seed", .help = "Seed of weights and shuffling ({})"}, &T::seed);
  f({.name = "replicas",
     .accepts = Between(1, 64),
     .flag = "--replicas",
     .help =
         "Daemons that train the job, 1..64: the server and some of its --peers. Each takes a share\nof every batch "
         "({})"},
    &T::replicas);
  f({.name = "min_replicas",
     .accepts = UpToOr0(64, "as many as replicas"),
     .flag = "--min-replicas",
     .help = "Fewest daemons to train with: the job begins with those that are free, goes on when one\nleaves, and "
             "takes in "
             "others up to --replicas (default: --replicas)"},
    &T::min_replicas);
  f({.name = "exchange_precision",
     .needs = {Need::kReplicas},
     .flag = "--exchange-precision",
     .help = "Precision of gradients on their way between daemons ({}): bfloat16 sends half of their bytes"},
    &T::exchange_precision, kPrecisionNames);
  f({.name = "checkpoint"}, &T::checkpoint);
  f({.name = "init_from"}, &T::init_from);
  f({.name = "fixed_parameters",
     .flag = "--fixed-parameters",
     .help = "Do not train parameters whose names begin so, such as convs.0 or head",
     .value = "NAME,..."},
    &T::fixed_parameters);
  f({.name = "cross_validation", .needs = {Need::kSet}}, &T::cross_validation);
  f({.name = "batching"}, &T::batching);
  f({.name = "neighbor_sampling", .stored = "nodes", .needs = {Need::kLargeGraph}}, &T::nodes);
  f({.name = "link_prediction", .stored = "links", .needs = {Need::kLargeGraph, Need::kLinks}}, &T::links);
  f({.name = "node2vec"}, &T::node2vec);
  f({.name = "graph_cache"}, &T::graph_cache);
}

// Returns the names of the models of a level: "sage, gcn".
std::string ModelsOf(ModelLevel level, std::string_view separator);

// Returns the options of a job whose spec names only a dataset. `level` is the level of that dataset.
TrainOptions DefaultOptions(ModelLevel level);

// Returns the defaults for a job with the level and model of `options`.
TrainOptions UsualOptions(const TrainOptions& options);

// True if the job trains a program.
inline bool IsProgram(const TrainOptions& options) { return TraitsOf(options.model.architecture).is_program; }
// True for node2vec: the job learns a row of weights for each node from random walks, and has no layers.
inline bool Walks(const TrainOptions& options) { return TraitsOf(options.model.architecture).walks; }
// Sets the defaults of node2vec, which are the values of PyG's example, in options for one large graph.
void SetNode2VecDefaults(TrainOptions& options);

// True if the job is evaluated layer by layer over the whole graph. A job may ask for this. Without temporal
// sampling, a job that samples batches of links is always evaluated so, because the negatives of its links may be any
// nodes.
bool EvaluatesLayerWise(const TrainOptions& options);

// True if evaluation bypasses the graph cache. Layer-wise evaluation bypasses it. The evaluation of links under
// temporal sampling bypasses it, too, because it needs a sampled block for each end of a link.
bool EvaluatesOutsideCache(const TrainOptions& options);

// Returns the metrics that the job's evaluations report, in order. The first one chooses the best epoch.
std::vector<Metric> MetricsOf(const TrainOptions& options);

// Adds a violation for each value out of range. Fields are named as on the wire, after `prefix` ("spec.").
void Validate(const TrainOptions& options, std::string_view prefix, Violations& violations);

}  // namespace permafrost::spec
