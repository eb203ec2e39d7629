// The models and their options, without torch. Threads: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/enum_names.h"
#include "base/id.h"
#include "spec/field.h"
#include "spec/loss.h"

namespace permafrost::spec {

enum class Pooling { kMean, kSum };
inline constexpr EnumNames<Pooling, 2> kPoolingNames{{{{Pooling::kMean, "mean"}, {Pooling::kSum, "sum"}}}};

// How a model uses edge features.
enum class EdgeUse {
  kNone,
  kWhereGiven,
  kNeeded  // for one large graph, features are required; in sets, a learned vector replaces missing features
};

enum class Architecture { kGine, kSage, kGcn, kGin, kGatv2, kNode2Vec, kProgram };

// The objects for which a model predicts. kGraph: each graph of a set. kNode: each node of one large graph. The
// dataset determines the level.
enum class ModelLevel { kGraph, kNode };
inline constexpr EnumNames<ModelLevel, 2> kModelLevelNames{
    {{{ModelLevel::kGraph, "graph"}, {ModelLevel::kNode, "node"}}}};

// The facts about a model that need no torch. The model's weights, its steps and their cost are in nn/models/model.h.
struct ModelTraits {
  Architecture architecture;
  std::string_view name;
  bool of_graphs, of_nodes;      // the levels that the model supports
  bool weighs_messages = false;  // true: the model uses the edge weights of one large graph
  // True: at node level, the first layer reads each node's row and the plain mean of its neighbours' rows. With dense
  // features, both can be computed while a batch is gathered.
  bool begins_with_means = false;
  EdgeUse edges = EdgeUse::kNone;
  bool has_heads = false;        // true: ModelOptions::heads has a meaning
  bool has_aggregation = false;  // true: ModelOptions::aggregation has a meaning
  // True: the model has no layers, and learns an embedding of each node from random walks.
  bool walks = false;
  // True: the model is a program (server/program). A program has its own options, and the names of its inputs say
  // what it reads.
  bool is_program = false;
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
                .walks = true},
    ModelTraits{.architecture = Architecture::kProgram,
                .name = "program",
                .of_graphs = true,
                .of_nodes = true,
                .weighs_messages = true,
                .edges = EdgeUse::kWhereGiven,
                .is_program = true}};

// The built-in models: all except programs.
inline constexpr std::span<const ModelTraits> kOwnModels = std::span(kModels).first<kModels.size() - 1>();
static_assert(kModels.back().is_program);

constexpr const ModelTraits& TraitsOf(Architecture architecture) {
  return RowOf(kModels, &ModelTraits::architecture, architecture);
}

inline constexpr auto kArchitectureNames = NamesFrom(kModels, &ModelTraits::architecture);

// The operators of which a step consists (nn/ops/lowering.h). kPlain: plain PyTorch operators. kShapeFree: operators
// that add no entry to the graph cache of MPS. kAuto: kShapeFree on MPS, fused operators on the CPU, and kPlain on
// other devices.
enum class Lowering { kAuto, kPlain, kShapeFree };
inline constexpr EnumNames<Lowering, 3> kLoweringNames{
    {{{Lowering::kAuto, "auto"}, {Lowering::kPlain, "plain"}, {Lowering::kShapeFree, "shape-free"}}}};

// The precision of the factors in matrix products with weights. kBfloat16 rounds the factors to bfloat16 and sums in
// float32. Weights, activations, gradients, norms, losses and the optimizer always use float32.
enum class Precision { kFloat32, kBfloat16 };
inline constexpr EnumNames<Precision, 2> kPrecisionNames{
    {{{Precision::kFloat32, "float32"}, {Precision::kBfloat16, "bfloat16"}}}};

// The score of a link. kDot: the dot product of the representations of its two nodes. kMlp: two linear layers,
// applied to the elementwise product of the two representations.
enum class LinkScore { kDot, kMlp };
inline constexpr EnumNames<LinkScore, 2> kLinkScoreNames{{{{LinkScore::kDot, "dot"}, {LinkScore::kMlp, "mlp"}}}};
// Returns the level for a stored spec that has no level: the only level that the model had in older versions.
constexpr ModelLevel FirstLevelOf(Architecture architecture) {
  const bool of_nodes = architecture == Architecture::kSage || architecture == Architecture::kGcn;
  return of_nodes || !TraitsOf(architecture).of_graphs ? ModelLevel::kNode : ModelLevel::kGraph;
}

// How a layer aggregates its neighbours' rows, for models that offer a choice.
enum class Aggregation { kMean, kMax };
inline constexpr EnumNames<Aggregation, 2> kAggregationNames{
    {{{Aggregation::kMean, "mean"}, {Aggregation::kMax, "max"}}}};

// The norm after a layer's convolution, before ReLU.
enum class Norm { kNone, kBatch, kLayer };
inline constexpr EnumNames<Norm, 3> kNormNames{
    {{{Norm::kNone, "none"}, {Norm::kBatch, "batch"}, {Norm::kLayer, "layer"}}}};

// The rows from which a model predicts. kLast: the output of the last layer. kCat: the outputs of all layers,
// concatenated. kMax: the elementwise maximum of the outputs of all layers.
enum class JumpingKnowledge { kLast, kCat, kMax };
inline constexpr EnumNames<JumpingKnowledge, 3> kJumpingKnowledgeNames{
    {{{JumpingKnowledge::kLast, "last"}, {JumpingKnowledge::kCat, "cat"}, {JumpingKnowledge::kMax, "max"}}}};

// The input of a node. kFeatures: its features. kLearned: an embedding of its own, for one large graph only. kDegree:
// its in-degree, capped at 255. On one large graph, the degree is one-hot in 256 columns; in a set of graphs, it
// selects an embedding. kConstant: 1. kAuto: kFeatures if the dataset has node features. Without features, kAuto is
// kLearned on one large graph. In a set without features, the API gives new jobs kDegree; kAuto, which older jobs
// have, is one embedding that all nodes share.
enum class NodeInputs { kAuto, kFeatures, kLearned, kDegree, kConstant };
inline constexpr EnumNames<NodeInputs, 5> kNodeInputsNames{{{{NodeInputs::kAuto, "auto"},
                                                             {NodeInputs::kFeatures, "features"},
                                                             {NodeInputs::kLearned, "learned"},
                                                             {NodeInputs::kDegree, "degree"},
                                                             {NodeInputs::kConstant, "constant"}}}};

// The input of an edge of one large graph, for models that read edges. kFeatures: its features. kWeights: its weight,
// as one column. kNone: nothing. kAuto: kFeatures if the graph has edge features, else kNone.
enum class EdgeInputs { kAuto, kFeatures, kWeights, kNone };
inline constexpr EnumNames<EdgeInputs, 4> kEdgeInputsNames{{{{EdgeInputs::kAuto, "auto"},
                                                             {EdgeInputs::kFeatures, "features"},
                                                             {EdgeInputs::kWeights, "weights"},
                                                             {EdgeInputs::kNone, "none"}}}};

// The default options of a job, given its level.
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
  ProgramId program;  // set for kProgram
  // The archive of the program: the path of its file, or its bytes if another daemon has sent them. The code that
  // runs or checks the job sets one of the two. Neither is a field of the job.
  std::filesystem::path program_file;
  std::shared_ptr<const std::string> program_bytes;
  ModelLevel level = ModelLevel::kGraph;
  int64_t hidden_channels = 64;  // 1..4096, a multiple of heads
  int64_t num_layers = 4;        // 1..64; 1 for kNode2Vec, which has no layers
  Pooling pooling = Pooling::kMean;
  double dropout = 0;        // 0 <= p < 1; applied after each layer, and to attention
  double input_dropout = 0;  // for node-level models: applied to the node features
  int64_t heads = 1;         // attention heads, 1..64
  Aggregation aggregation = Aggregation::kMean;
  Norm norm = Norm::kBatch;
  // Adds a layer's input to its output. On one large graph not in the first layer, nor in a last layer that predicts.
  bool residual = false;
  JumpingKnowledge jumping_knowledge = JumpingKnowledge::kLast;
  bool virtual_node = false;        // for sets of graphs: adds to each graph a node that is connected to all its nodes
  bool normalize_features = false;  // for node-level models: divides each feature row by the sum of its absolute values
  NodeInputs node_inputs = NodeInputs::kAuto;
  EdgeInputs edge_inputs = EdgeInputs::kAuto;  // for node-level models
  // For kDegree on one large graph. True: the one-hot degrees have as many columns as the graph's largest in-degree
  // needs, instead of 256 columns for every graph. The weights of older jobs have this form.
  bool own_degree_columns = false;
  Lowering lowering = Lowering::kAuto;
  Precision precision = Precision::kFloat32;
  bool operator==(const ModelOptions&) const = default;
};

template <class F>
void VisitFields(Options<ModelOptions>, F&& f) {
  using M = ModelOptions;
  f({.name = "architecture", .flag = "--model,--architecture", .help = "Model ({})"}, &M::architecture,
    kArchitectureNames);
  f({.name = "program",
     .flag = "--program",
     .help = "Train a module of your own, a program, in place of a model of the server's (program import)",
     .value = "NAME"},
    &M::program);
  f({.name = "level", .only_stored = true}, &M::level, kModelLevelNames);
  f({.name = "hidden_channels",
     .accepts = Between(1, 4096),
     .needs = {Need::kOwnModel},
     .flag = "--hidden",
     .help = "Channels of a node, 1..4096 ({})"},
    &M::hidden_channels);
  f({.name = "num_layers",
     .accepts = Between(1, 64),
     .needs = {Need::kLayers},
     .flag = "--layers",
     .help = "Message-passing layers, 1..64 ({}; with --fan-out one for each hop)"},
    &M::num_layers);
  f({.name = "pooling",
     .needs = {Need::kSet, Need::kOwnModel},
     .flag = "--pooling",
     .help = "How nodes become a graph ({})"},
    &M::pooling, kPoolingNames);
  f({.name = "lowering",
     .needs = {Need::kOwnModel},
     .flag = "--lowering",
     .help = "Operators of a step: shape-free ones add nothing to the graph cache of MPS ({})"},
    &M::lowering, kLoweringNames);
  f({.name = "precision",
     .needs = {Need::kProducts},
     .flag = "--precision",
     .help = "Factors of products with weights; bfloat16 wants a CPU with AVX512-BF16 ({})"},
    &M::precision, kPrecisionNames);
  f({.name = "dropout",
     .accepts = kPart,
     .needs = {Need::kLayers},
     .flag = "--dropout",
     .help = "Part of a layer's outputs zeroed in training ({})"},
    &M::dropout);
  f({.name = "input_dropout",
     .accepts = kPart,
     .needs = {Need::kLargeGraph, Need::kFeatures, Need::kOwnModel},
     .flag = "--input-dropout",
     .help = "Part of the node features of one large graph zeroed in training ({})"},
    &M::input_dropout);
  f({.name = "heads",
     .accepts = Between(1, 64),
     .needs = {Need::kOwnModel},
     .flag = "--heads",
     .help = "Heads of gatv2's attention, 1..64, which share the channels ({})"},
    &M::heads);
  f({.name = "aggregation",
     .needs = {Need::kOwnModel},
     .flag = "--aggregation",
     .help = "What sage makes of its neighbours' rows ({})"},
    &M::aggregation, kAggregationNames);
  f({.name = "norm", .needs = {Need::kLayers}, .flag = "--norm", .help = "Norm after each convolution ({})"}, &M::norm,
    kNormNames);
  f({.name = "jumping_knowledge",
     .needs = {Need::kLayers},
     .flag = "--jumping-knowledge",
     .help = "What predicts: the last layer, or all side by side, or their largest values ({})"},
    &M::jumping_knowledge, kJumpingKnowledgeNames);
  f({.name = "residual",
     .needs = {Need::kLayers},
     .flag = "--residual",
     .help = "A layer's input is added to its output"},
    &M::residual);
  f({.name = "virtual_node",
     .needs = {Need::kSet, Need::kOwnModel},
     .flag = "--virtual-node",
     .help = "Each graph of a set has a node that sees all of its nodes"},
    &M::virtual_node);
  f({.name = "normalize_features",
     .needs = {Need::kLargeGraph, Need::kFeatures, Need::kOwnModel},
     .flag = "--normalize-features",
     .help = "Node features of one large graph are divided by their row's sum of magnitudes"},
    &M::normalize_features);
  f({.name = "node_inputs",
     .needs = {Need::kFeatures},
     .flag = "--node-inputs",
     .help = "What a node begins with (default features where there are some, else learned on one large graph, degree "
             "in sets of graphs)"},
    &M::node_inputs, kNodeInputsNames);
  f({.name = "own_degree_columns", .only_stored = true}, &M::own_degree_columns);
  f({.name = "edge_inputs",
     .needs = {Need::kLargeGraph, Need::kOwnModel},
     .flag = "--edge-inputs",
     .help = "What gine and gatv2 read of the edges of one large graph (default features where there are some)"},
    &M::edge_inputs, kEdgeInputsNames);
}

}  // namespace permafrost::spec
