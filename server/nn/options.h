// Describes a model, its loss and its optimizer, without torch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/enum_names.h"

namespace permafrost::nn {

enum class Pooling { kMean, kSum };
inline constexpr EnumNames<Pooling, 2> kPoolingNames{{{{Pooling::kMean, "mean"}, {Pooling::kSum, "sum"}}}};

// kCrossEntropy: one label a row, a class 0..C-1. kBce: binary cross-entropy on logits, each target by itself 0 or 1.
enum class Loss { kL1, kMse, kCrossEntropy, kBce };
inline constexpr EnumNames<Loss, 4> kLossNames{
    {{{Loss::kL1, "l1"}, {Loss::kMse, "mse"}, {Loss::kCrossEntropy, "cross-entropy"}, {Loss::kBce, "bce"}}}};

// The figures that evaluation can report beside the loss; nn/metrics.h explains each.
enum class Metric {
  kMae,
  kAccuracy,
  kRocAuc,
  kF1Macro,
  kF1Micro,
  kAveragePrecision,
  kRmse,
  kR2,
  // These serve link prediction alone: nn/link_metrics.h.
  kMrr,
  kHitsAt10,
  kHitsAt20,
  kHitsAt50,
  kHitsAt100
};
inline constexpr EnumNames<Metric, 13> kMetricNames{{{{Metric::kMae, "mae"},
                                                      {Metric::kAccuracy, "accuracy"},
                                                      {Metric::kRocAuc, "roc_auc"},
                                                      {Metric::kF1Macro, "f1_macro"},
                                                      {Metric::kF1Micro, "f1_micro"},
                                                      {Metric::kAveragePrecision, "average_precision"},
                                                      {Metric::kRmse, "rmse"},
                                                      {Metric::kR2, "r2"},
                                                      {Metric::kMrr, "mrr"},
                                                      {Metric::kHitsAt10, "hits_at_10"},
                                                      {Metric::kHitsAt20, "hits_at_20"},
                                                      {Metric::kHitsAt50, "hits_at_50"},
                                                      {Metric::kHitsAt100, "hits_at_100"}}}};
// The metric of a job that asks for none.
constexpr Metric MetricOf(Loss loss) {
  switch (loss) {
    case Loss::kCrossEntropy:
      return Metric::kAccuracy;
    case Loss::kBce:
      return Metric::kRocAuc;
    default:
      return Metric::kMae;
  }
}
constexpr bool HigherIsBetter(Metric metric) { return metric != Metric::kMae && metric != Metric::kRmse; }
constexpr bool IsRanking(Metric metric) { return metric >= Metric::kMrr; }
// Returns whether the metric says anything of what a model of graphs or nodes learned by this loss.
constexpr bool Measures(Metric metric, Loss loss) {
  if (IsRanking(metric)) return false;
  const bool of_values = metric == Metric::kMae || metric == Metric::kRmse || metric == Metric::kR2;
  return of_values == (loss == Loss::kL1 || loss == Loss::kMse);
}

// The use that a model makes of the features of edges.
enum class EdgeUse {
  kNone,
  kWhereGiven,
  kNeeded  // of one large graph; in sets a learned vector stands for features that are not there
};

enum class Architecture { kGine, kSage, kGcn, kGin, kGatv2, kNode2Vec };

// The things that a model predicts for: each graph of a set of many, or each node of one large graph. The dataset
// decides.
enum class ModelLevel { kGraph, kNode };
inline constexpr EnumNames<ModelLevel, 2> kModelLevelNames{
    {{{ModelLevel::kGraph, "graph"}, {ModelLevel::kNode, "node"}}}};

// The facts about a model that need no torch. Its weights, its steps and what they cost: nn/models/registry.h.
struct ModelTraits {
  Architecture architecture;
  std::string_view name;
  bool of_graphs, of_nodes;      // the levels that it serves
  bool weighs_messages = false;  // whether it reads the weights of one large graph's edges
  // True: on nodes its first layer begins with the plain mean of each row's neighbours, and the row beside it: for
  // dense features these can be made while a batch is gathered.
  bool begins_with_means = false;
  EdgeUse edges = EdgeUse::kNone;
  bool has_heads = false;        // whether ModelOptions::heads has a meaning
  bool has_aggregation = false;  // whether ModelOptions::aggregation has a meaning
  // True: it has no layers, but a row of weights for each node, which are learned from random walks.
  bool walks = false;
  constexpr bool Serves(ModelLevel level) const { return level == ModelLevel::kGraph ? of_graphs : of_nodes; }
};
inline constexpr std::array kModels{
    ModelTraits{.architecture = Architecture::kGine,
                .name = "gine",
                .of_graphs = true,
                .of_nodes = true,
                .edges = EdgeUse::kNeeded},
    ModelTraits{.architecture = Architecture::kSage,
                .name = "sage",
                .of_graphs = true,
                .of_nodes = true,
                .begins_with_means = true,
                .has_aggregation = true},
    ModelTraits{.architecture = Architecture::kGcn,
                .name = "gcn",
                .of_graphs = true,
                .of_nodes = true,
                .weighs_messages = true},
    ModelTraits{.architecture = Architecture::kGin, .name = "gin", .of_graphs = true, .of_nodes = true},
    ModelTraits{.architecture = Architecture::kGatv2,
                .name = "gatv2",
                .of_graphs = true,
                .of_nodes = true,
                .edges = EdgeUse::kWhereGiven,
                .has_heads = true},
    ModelTraits{.architecture = Architecture::kNode2Vec,
                .name = "node2vec",
                .of_graphs = false,
                .of_nodes = true,
                .walks = true}};

constexpr const ModelTraits& TraitsOf(Architecture architecture) {
  for (const ModelTraits& model : kModels)
    if (model.architecture == architecture) return model;
  return kModels.front();
}

inline constexpr auto kArchitectureNames = [] {
  EnumNames<Architecture, kModels.size()> names{};
  for (size_t i = 0; i < kModels.size(); ++i) names.rows[i] = {kModels[i].architecture, kModels[i].name};
  return names;
}();

// What a step is made of: the CPU's fused operators; those of PyTorch that say it best; or those that add no entry to
// the graph cache of MPS (nn/ops/lowering.h). kAuto: shape-free on MPS, fused on the CPU, else plain.
enum class Lowering { kAuto, kPlain, kShapeFree };
inline constexpr EnumNames<Lowering, 3> kLoweringNames{
    {{{Lowering::kAuto, "auto"}, {Lowering::kPlain, "plain"}, {Lowering::kShapeFree, "shape-free"}}}};

// The factors of products with weights: rounded to bfloat16, whose sums are float32, or not rounded. Weights,
// activations, gradients, norms, losses and the optimizer are float32 in both.
enum class Precision { kFloat32, kBfloat16 };
inline constexpr EnumNames<Precision, 2> kPrecisionNames{
    {{{Precision::kFloat32, "float32"}, {Precision::kBfloat16, "bfloat16"}}}};

// kSparseAdam: Adam of the rows of a table that a step has a gradient of; others and their moments stay as they are.
enum class OptimizerAlgorithm { kAdam, kAdamW, kSgd, kSparseAdam };
inline constexpr EnumNames<OptimizerAlgorithm, 4> kOptimizerNames{{{{OptimizerAlgorithm::kAdam, "adam"},
                                                                    {OptimizerAlgorithm::kAdamW, "adamw"},
                                                                    {OptimizerAlgorithm::kSgd, "sgd"},
                                                                    {OptimizerAlgorithm::kSparseAdam, "sparse_adam"}}}};

// kPlateau: falls where validation gets no better (train/plateau.h).
enum class Schedule { kConstant, kCosine, kLinear, kStep, kPlateau };
inline constexpr EnumNames<Schedule, 5> kScheduleNames{{{{Schedule::kConstant, "constant"},
                                                         {Schedule::kCosine, "cosine"},
                                                         {Schedule::kLinear, "linear"},
                                                         {Schedule::kStep, "step"},
                                                         {Schedule::kPlateau, "plateau"}}}};

// Parameters that weight decay shrinks: all; those of two dimensions and more, which biases and norms are not; those of
// the first convolution, as Kipf and Welling 2017.
enum class WeightDecayOf { kAll, kMatrices, kFirstLayer };
inline constexpr EnumNames<WeightDecayOf, 3> kWeightDecayOfNames{{{{WeightDecayOf::kAll, "all"},
                                                                   {WeightDecayOf::kMatrices, "matrices"},
                                                                   {WeightDecayOf::kFirstLayer, "first_layer"}}}};

// The score of a link: the dot product of its nodes' representations, or two linear layers of their product.
enum class LinkScore { kDot, kMlp };
inline constexpr EnumNames<LinkScore, 2> kLinkScoreNames{{{{LinkScore::kDot, "dot"}, {LinkScore::kMlp, "mlp"}}}};
// Returns whether the metric says anything of predicted links.
constexpr bool MeasuresLinks(Metric metric) {
  return IsRanking(metric) || metric == Metric::kRocAuc || metric == Metric::kAveragePrecision;
}

// The level that a model had while each had one: of a spec that does not say it.
constexpr ModelLevel FirstLevelOf(Architecture architecture) {
  const bool of_nodes = architecture == Architecture::kSage || architecture == Architecture::kGcn;
  return of_nodes || !TraitsOf(architecture).of_graphs ? ModelLevel::kNode : ModelLevel::kGraph;
}

// The way in which a layer aggregates its neighbours' rows, where the model lets one choose.
enum class Aggregation { kMean, kMax };
inline constexpr EnumNames<Aggregation, 2> kAggregationNames{
    {{{Aggregation::kMean, "mean"}, {Aggregation::kMax, "max"}}}};

// The norm after a layer's convolution, before ReLU.
enum class Norm { kNone, kBatch, kLayer };
inline constexpr EnumNames<Norm, 3> kNormNames{
    {{{Norm::kNone, "none"}, {Norm::kBatch, "batch"}, {Norm::kLayer, "layer"}}}};

// The rows that predict: the last layer's output, those of all layers side by side, or their largest values.
enum class JumpingKnowledge { kLast, kCat, kMax };
inline constexpr EnumNames<JumpingKnowledge, 3> kJumpingKnowledgeNames{
    {{{JumpingKnowledge::kLast, "last"}, {JumpingKnowledge::kCat, "cat"}, {JumpingKnowledge::kMax, "max"}}}};

// The input of a node: its features; a row of weights of its own, which are trained (of one large graph); 1 in the
// column, of 256, of its number of in-edges, or in a set that column's weights; or 1. kAuto: features where there are
// some, else learned, or in a set one row of weights for all nodes.
enum class NodeInputs { kAuto, kFeatures, kLearned, kDegree, kConstant };
inline constexpr EnumNames<NodeInputs, 5> kNodeInputsNames{{{{NodeInputs::kAuto, "auto"},
                                                             {NodeInputs::kFeatures, "features"},
                                                             {NodeInputs::kLearned, "learned"},
                                                             {NodeInputs::kDegree, "degree"},
                                                             {NodeInputs::kConstant, "constant"}}}};

// The input that a model of one large graph has of its edges, if it reads any: their features, their weights as one
// column, or nothing. kAuto: features where the graph has some, else nothing.
enum class EdgeInputs { kAuto, kFeatures, kWeights, kNone };
inline constexpr EnumNames<EdgeInputs, 4> kEdgeInputsNames{{{{EdgeInputs::kAuto, "auto"},
                                                             {EdgeInputs::kFeatures, "features"},
                                                             {EdgeInputs::kWeights, "weights"},
                                                             {EdgeInputs::kNone, "none"}}}};

// The options of a job that names its dataset and nothing else.
struct LevelDefaults {
  Architecture architecture;
  int64_t num_layers, batch_size;
  Loss loss;
  Norm norm;
};
constexpr LevelDefaults DefaultsOf(ModelLevel level) {
  if (level == ModelLevel::kGraph) return {Architecture::kGine, 4, 32, Loss::kL1, Norm::kBatch};
  return {Architecture::kSage, 2, 1024, Loss::kCrossEntropy, Norm::kNone};
}

struct ModelOptions {
  Architecture architecture = Architecture::kGine;
  ModelLevel level = ModelLevel::kGraph;
  int64_t hidden_channels = 64;  // 1..4096, a multiple of heads
  int64_t num_layers = 4;        // 1..64; of kNode2Vec, which has none, 1
  Pooling pooling = Pooling::kMean;
  double dropout = 0;        // 0 <= p < 1, after each layer; of attention too
  double input_dropout = 0;  // of node features, of nodes
  int64_t heads = 1;         // of attention, 1..64
  Aggregation aggregation = Aggregation::kMean;
  Norm norm = Norm::kBatch;
  bool residual = false;  // a layer's input is added to its output, where both are as wide
  JumpingKnowledge jumping_knowledge = JumpingKnowledge::kLast;
  bool virtual_node = false;        // of graphs: a node that all of a graph's nodes see, and that sees all
  bool normalize_features = false;  // of nodes: each row of features is divided by the sum of its magnitudes
  NodeInputs node_inputs = NodeInputs::kAuto;
  EdgeInputs edge_inputs = EdgeInputs::kAuto;  // of nodes
  // For kDegree on one large graph: as many columns as its own largest number of in-edges asks for, in place of 256,
  // which are the same on every graph. Jobs that an older version made have weights of that form.
  bool own_degree_columns = false;
  Lowering lowering = Lowering::kAuto;
  Precision precision = Precision::kFloat32;
  bool operator==(const ModelOptions&) const = default;
};

struct OptimizerOptions {
  OptimizerAlgorithm algorithm = OptimizerAlgorithm::kAdam;
  double learning_rate = 1e-3;  // > 0
  double weight_decay = 0;      // >= 0; into the gradient for Adam and SGD, decoupled for AdamW
  double max_grad_norm = 0;     // gradients are scaled down to this norm; 0: not clipped
  // learning_rate is what warm-up rises to and the schedule begins with.
  Schedule schedule = Schedule::kConstant;
  int64_t warmup_steps = 0;  // >= 0
  // For SGD: 0 <= momentum < 1, and whether the step looks ahead by it.
  double momentum = 0;
  bool nesterov = false;
  // For kStep: the learning rate is multiplied by decay_factor after every decay_epochs epochs.
  int64_t decay_epochs = 0;   // >= 1
  double decay_factor = 0.1;  // > 0
  // For kPlateau: after more epochs in a row than this that validated no better than the best before them, by this part
  // of it, the learning rate is multiplied by decay_factor, < 1, and never below the least one.
  int64_t plateau_patience = 10;    // >= 0
  double plateau_threshold = 1e-4;  // 0 <= t < 1
  double min_learning_rate = 0;     // 0 <= r < learning_rate
  WeightDecayOf weight_decay_of = WeightDecayOf::kAll;
  // The part that an update leaves of the averages of the weights, which evaluate and are exported, as
  // torch.optim.swa_utils.AveragedModel. 0: there are none, 0 <= d < 1.
  double ema_decay = 0;
  int64_t accumulate_steps = 1;  // batches whose mean gradient makes one update, 1..65,536
  bool operator==(const OptimizerOptions&) const = default;
};

}  // namespace permafrost::nn
