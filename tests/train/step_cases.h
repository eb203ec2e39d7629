// Small jobs of every model and kind of batch, for tests that compare two ways of running a step.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "data/store/dataset.h"
#include "spec/train_options.h"
#include "tiny_graph.h"
#include "tiny_graphs.h"

namespace permafrost::train {

// The number of small graphs in a set, or the options of one large graph.
using CaseData = std::variant<int, TinyGraphOptions>;

inline data::OpenedDataset Write(const CaseData& data, const std::filesystem::path& folder) {
  if (const int* graphs = std::get_if<int>(&data)) return ImportTinyGraphs(folder, *graphs);
  return WriteTinyGraph(folder, std::get<TinyGraphOptions>(data));
}

struct StepCase {
  std::string why;
  CaseData data;
  spec::TrainOptions options;
  bool one_shape = false;
  // Jobs with links or walks are evaluated on the rows of all nodes, which is no step.
  bool evaluates_by_steps() const { return !options.links.enabled && !Walks(options); }
};

inline spec::TrainOptions GraphJob() {
  spec::TrainOptions options;
  options.model = {.hidden_channels = 16, .num_layers = 3};
  options.batch_size = 9;
  options.epochs = 4;
  options.seed = 3;
  return options;
}

inline spec::TrainOptions NodeJob(spec::Architecture architecture) {
  spec::TrainOptions options;
  options.model = DefaultOptions(spec::ModelLevel::kNode).model;
  options.model.architecture = architecture;
  options.model.hidden_channels = 16;
  options.optimizer.learning_rate = 1e-2;
  options.loss = spec::Loss::kCrossEntropy;
  options.nodes.fan_outs = {4, 3};
  options.batch_size = 50;  // 240 training nodes: four full batches and one of 40
  options.epochs = 4;
  options.seed = 3;
  return options;
}

inline void AddLowerings(const std::string& name, const CaseData& data, spec::TrainOptions options,
                         std::vector<StepCase>& cases) {
  for (const spec::Lowering lowering : {spec::Lowering::kPlain, spec::Lowering::kShapeFree}) {
    options.model.lowering = lowering;
    cases.push_back({name + ", " + std::string(spec::kLoweringNames.Name(lowering)), data, options});
  }
}

// Named parts that models may have beside their convolutions.
struct ModelParts {
  const char* name;
  void (*add)(spec::ModelOptions& model);
};
inline constexpr ModelParts kModelParts[] = {{"layer norm, residual, cat",
                                              [](spec::ModelOptions& m) {
                                                m.norm = spec::Norm::kLayer;
                                                m.residual = true;
                                                m.jumping_knowledge = spec::JumpingKnowledge::kCat;
                                              }},
                                             {"batch norm, max, dropout",
                                              [](spec::ModelOptions& m) {
                                                m.norm = spec::Norm::kBatch;
                                                m.jumping_knowledge = spec::JumpingKnowledge::kMax;
                                                m.dropout = 0.2;
                                              }},
                                             {"all else that its level has", [](spec::ModelOptions& m) {
                                                const bool of_nodes = m.level == spec::ModelLevel::kNode;
                                                m.norm = spec::Norm::kNone;
                                                m.virtual_node = !of_nodes;
                                                m.normalize_features = of_nodes;
                                                m.input_dropout = of_nodes ? 0.3 : 0;
                                                m.dropout = 0.1;
                                                if (spec::TraitsOf(m.architecture).has_heads) m.heads = 4;
                                                if (spec::TraitsOf(m.architecture).has_aggregation)
                                                  m.aggregation = spec::Aggregation::kMax;
                                              }}};

// Adds cases of the options of an update, and of fixed parameters.
inline void AddUpdateCases(const std::string& name, const CaseData& data, const spec::TrainOptions& options,
                           std::vector<StepCase>& cases) {
  spec::TrainOptions grouped = options, fixed = options;
  grouped.optimizer.accumulate_steps = 3;
  grouped.optimizer.ema_decay = 0.9;
  grouped.optimizer.weight_decay = 0.01;
  grouped.optimizer.weight_decay_of = spec::WeightDecayOf::kMatrices;
  grouped.epochs = 2;
  fixed.model.norm = spec::Norm::kBatch;
  fixed.optimizer = {.algorithm = spec::OptimizerAlgorithm::kSgd,
                     .learning_rate = 1e-3,
                     .weight_decay = 0.01,
                     .max_grad_norm = 0.1,
                     .momentum = 0.9,
                     .weight_decay_of = spec::WeightDecayOf::kFirstLayer,
                     .ema_decay = 0.5,
                     .accumulate_steps = 2};
  fixed.fixed_parameters = {"convs.1.", "norms.0"};
  fixed.epochs = 2;
  cases.push_back({name + ", groups of batches, averages, decay of matrices", data, grouped});
  cases.push_back({name + ", SGD, decay of the first layer, a fixed layer and a fixed norm", data, fixed});
}

inline void AddSetCases(const spec::ModelTraits& model, std::vector<StepCase>& cases) {
  const std::string name(model.name);
  spec::TrainOptions plain = GraphJob(), everything = GraphJob(), single = GraphJob();
  plain.model.architecture = everything.model.architecture = single.model.architecture = model.architecture;
  everything.model.dropout = 0.3;
  everything.model.pooling = spec::Pooling::kSum;
  everything.optimizer = {
      .algorithm = spec::OptimizerAlgorithm::kAdamW, .learning_rate = 3e-3, .weight_decay = 0.01, .max_grad_norm = 0.1};
  everything.loss = spec::Loss::kMse;
  spec::TrainOptions sgd = plain;
  sgd.optimizer = {
      .algorithm = spec::OptimizerAlgorithm::kSgd, .learning_rate = 1e-3, .momentum = 0.9, .nesterov = true};
  single.batch_size = 1;  // some graphs have one node, and some no edges
  single.epochs = 1;
  cases.push_back({name, 100, plain});
  cases.push_back({name + ", dropout, sum pooling, AdamW, clipping, MSE", 100, everything});
  cases.push_back({name + ", batches of one graph", 60, single});
  spec::TrainOptions last = plain;
  last.model.virtual_node = true;
  last.batch_size = 47;  // 48 training graphs: the last batch has one graph, so its virtual node is a single row
  cases.push_back({name + ", a virtual node, one graph in the last batch", 60, last});
  if (model.architecture == spec::Architecture::kGine) {
    cases.push_back({name + ", SGD", 60, sgd});
    AddUpdateCases(name, 60, everything, cases);
  }
  for (const ModelParts& parts : kModelParts) {
    spec::TrainOptions options = plain;
    parts.add(options.model);
    cases.push_back({name + ", " + parts.name, 60, options});
  }
  AddLowerings(name, 60, everything, cases);
}

// Gives edges the features that the model's cases need: floats if the model cannot do without them.
inline TinyGraphOptions GraphFor(const spec::ModelTraits& model, TinyGraphOptions options = {}) {
  if (model.edges == spec::EdgeUse::kNeeded) options.edge_floats = 3;
  return options;
}

inline void AddNodeCases(const spec::ModelTraits& model, std::vector<StepCase>& cases) {
  const std::string name = std::string(model.name) + " of nodes";
  spec::TrainOptions plain = NodeJob(model.architecture), dropout = plain, deep = plain, many = plain, wide = plain,
                     whole = plain, lone = plain;
  dropout.model.dropout = 0.4;
  dropout.class_weights = {1, 2, 0.5};
  dropout.optimizer.max_grad_norm = 0.1;
  deep.model.num_layers = 3;
  deep.nodes.fan_outs = {3, -1, 2};
  deep.nodes.replace = true;
  many.loss = spec::Loss::kBce;
  many.nodes.weighted = true;
  wide.nodes.fan_outs = {200, 200};
  wide.nodes.replace = true;
  wide.batch_size = 79;  // the last batch has three seeds, and the last of evaluation has one
  // With another seed, one gradient of these sums would jump at a ReLU's 0 with one lowering and not with the other.
  if (model.edges == spec::EdgeUse::kNeeded) wide.seed = 5;
  whole.nodes.fan_outs = {};
  // 240 training nodes: the last batch has one seed, so its last layer has one row.
  lone.model.norm = spec::Norm::kBatch;
  lone.model.jumping_knowledge = spec::JumpingKnowledge::kCat;
  lone.batch_size = 239;
  lone.epochs = 2;
  cases.push_back({name, GraphFor(model), plain});
  cases.push_back({name + ", batch norm, one seed in the last batch", GraphFor(model), lone});
  cases.push_back({name + ", weighted edges", GraphFor(model, {.weighted = true}), plain});
  cases.push_back(
      {name + ", sparse features, dropout, class weights, clipping", GraphFor(model, {.sparse = true}), dropout});
  cases.push_back({name + ", three layers, all neighbours in the second", GraphFor(model), deep});
  cases.push_back({name + ", sparse features, several targets, drawn by weight",
                   GraphFor(model, {.sparse = true, .weighted = true, .targets = 3}), many});
  cases.push_back({name + ", odd batches", GraphFor(model), wide});
  cases.push_back({name + " on the whole graph", GraphFor(model), whole, true});
  for (const ModelParts& parts : kModelParts) {
    spec::TrainOptions options = deep;
    parts.add(options.model);
    cases.push_back({name + ", " + parts.name, GraphFor(model), options});
    if (&parts != &kModelParts[std::size(kModelParts) - 1]) continue;
    options.model.num_layers = 2;
    options.nodes = whole.nodes;
    cases.push_back(
        {name + " on the whole graph, sparse, " + parts.name, GraphFor(model, {.sparse = true}), options, true});
  }
  if (model.architecture == spec::Architecture::kSage || model.architecture == spec::Architecture::kGcn) {
    spec::TrainOptions learned = dropout, degree = plain, squares = plain, distances = whole;
    squares.loss = spec::Loss::kMse;
    distances.loss = spec::Loss::kL1;
    cases.push_back({name + ", a measure, squared errors", GraphFor(model, {.measures = true}), squares});
    cases.push_back({name + " on the whole graph, a measure, absolute errors", GraphFor(model, {.measures = true}),
                     distances, true});
    learned.model.input_dropout = 0.2;
    degree.model.node_inputs = spec::NodeInputs::kDegree;
    degree.nodes = whole.nodes;
    cases.push_back({name + ", learned inputs, dropout", GraphFor(model, {.features = false}), learned});
    cases.push_back({name + " on the whole graph, degrees", GraphFor(model, {.features = false}), degree, true});
    degree.nodes = plain.nodes;
    degree.model.node_inputs = spec::NodeInputs::kConstant;
    cases.push_back({name + ", constant inputs", GraphFor(model, {.features = false}), degree});
    learned.nodes = whole.nodes;
    cases.push_back(
        {name + " on the whole graph, learned inputs", GraphFor(model, {.features = false}), learned, true});
  }
  if (model.architecture == spec::Architecture::kGcn) AddUpdateCases(name, GraphFor(model), dropout, cases);
  AddLowerings(name, GraphFor(model), dropout, cases);
}

// Adds cases of the edge inputs that models read, sampled and on the whole graph. Models that need float features
// have them in their own cases.
inline void AddEdgeCases(const spec::ModelTraits& model, std::vector<StepCase>& cases) {
  const std::string name = std::string(model.name) + " of nodes and edges";
  const TinyGraphOptions floats{.edge_floats = 3}, few{.edge_categories = 4}, many{.edge_categories = 40};
  spec::TrainOptions plain = NodeJob(model.architecture), weights = plain, whole = plain, links = plain;
  weights.model.edge_inputs = spec::EdgeInputs::kWeights;
  weights.model.norm = spec::Norm::kBatch;
  whole.nodes.fan_outs = {};
  whole.model.dropout = 0.2;
  links.loss = spec::Loss::kBce;
  links.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.2}, .eval_negatives = 20};
  links.batch_size = 70;
  links.model.residual = true;
  links.model.jumping_knowledge = spec::JumpingKnowledge::kCat;
  cases.push_back({name + ", floats", floats, plain});
  cases.push_back({name + ", few categories", few, plain});
  cases.push_back({name + ", many categories", many, plain});
  cases.push_back({name + ", weights", TinyGraphOptions{.weighted = true}, weights});
  cases.push_back({name + ", floats, the whole graph", floats, whole, true});
  cases.push_back({name + ", few categories, the whole graph", few, whole, true});
  cases.push_back({name + ", links", floats, links});
  AddLowerings(name + ", floats", floats, plain, cases);
  AddLowerings(name + ", few categories", few, plain, cases);
}

// Jobs that predict links with both decoders, sampled and on the whole graph.
inline void AddLinkCases(std::vector<StepCase>& cases) {
  const auto job = [](spec::Architecture architecture) {
    spec::TrainOptions options = NodeJob(architecture);
    options.loss = spec::Loss::kBce;
    options.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.2}, .eval_negatives = 20};
    options.batch_size = 70;  // the last batch is partial
    return options;
  };
  spec::TrainOptions sage = job(spec::Architecture::kSage), gcn = job(spec::Architecture::kGcn),
                     gin = job(spec::Architecture::kGin), whole = job(spec::Architecture::kGatv2), all = sage;
  gcn.links.score = spec::LinkScore::kMlp;
  gcn.links.negatives = 3;
  gcn.links.sampling = spec::NegativeSampling::kDegree;
  gcn.model.dropout = 0.3;
  gin.model.norm = spec::Norm::kBatch;
  gin.class_weights = {0.5, 2};
  whole.nodes.fan_outs = {};
  whole.links.score = spec::LinkScore::kMlp;
  all.batch_size = 60'000;  // one batch per epoch
  cases.push_back({"links by sage", TinyGraphOptions{}, sage});
  cases.push_back({"links by gcn, weighted edges, sparse features, MLP, dropout, 3 negatives by degree",
                   TinyGraphOptions{.sparse = true, .weighted = true}, gcn});
  cases.push_back({"links by gin, batch norm, class weights", TinyGraphOptions{}, gin});
  cases.push_back({"all links in one batch", TinyGraphOptions{}, all});
  cases.push_back({"links by gatv2 on the whole graph, MLP", TinyGraphOptions{}, whole});
  AddLowerings("links by gcn", TinyGraphOptions{.sparse = true, .weighted = true}, gcn, cases);
  AddLowerings("links on the whole graph", TinyGraphOptions{}, whole, cases);
  for (StepCase& c : cases) c.one_shape |= c.options.links.enabled && c.options.nodes.fan_outs.empty();
}

inline spec::TrainOptions WalkJob() {
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.model.architecture = spec::Architecture::kNode2Vec;
  SetNode2VecDefaults(options);
  options.model.hidden_channels = 16;
  options.node2vec = {.walk_length = 8, .context_size = 4, .walks_per_node = 2};
  options.batch_size = 90;  // 400 nodes: four full batches and one of 40
  options.epochs = 4;
  options.seed = 3;
  return options;
}

inline void AddWalkCases(std::vector<StepCase>& cases) {
  spec::TrainOptions biased = WalkJob(), dense = WalkJob();
  biased.node2vec.p = 0.5;
  biased.node2vec.q = 2;
  biased.node2vec.num_negative_samples = 3;
  dense.optimizer = {.learning_rate = 1e-2, .weight_decay = 0.01, .max_grad_norm = 0.1};
  cases.push_back({"node2vec", TinyGraphOptions{}, WalkJob(), true});
  cases.push_back({"node2vec, p and q, 3 negatives", TinyGraphOptions{.features = false}, biased, true});
  cases.push_back({"node2vec, a dense gradient, Adam, decay, clipping", TinyGraphOptions{}, dense, true});
  spec::TrainOptions plain = biased;
  plain.model.lowering = spec::Lowering::kPlain;
  cases.push_back({"node2vec, plain", TinyGraphOptions{}, plain, true});
}

inline std::vector<StepCase> StepCases() {
  std::vector<StepCase> cases;
  for (const spec::ModelTraits& model : spec::kOwnModels) {
    if (model.of_graphs) AddSetCases(model, cases);
    if (model.walks) AddWalkCases(cases);
    if (model.of_nodes && !model.walks) AddNodeCases(model, cases);
    if (model.of_nodes && model.edges != spec::EdgeUse::kNone) AddEdgeCases(model, cases);
  }
  AddLinkCases(cases);
  return cases;
}

// Returns, in bfloat16 and with two epochs, each model's plainest job and the jobs that use PyTorch's operators.
inline std::vector<StepCase> Bfloat16Cases() {
  std::vector<StepCase> cases;
  for (StepCase& c : StepCases()) {
    const bool plainest = c.why.find(',') == std::string::npos;
    if (!plainest && c.options.model.lowering != spec::Lowering::kPlain) continue;
    if (Walks(c.options)) continue;  // walks have no products with weights
    c.why += ", bfloat16";
    c.options.model.precision = spec::Precision::kBfloat16;
    c.options.epochs = std::min<int64_t>(c.options.epochs, 2);
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace permafrost::train
