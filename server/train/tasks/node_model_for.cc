#include "train/tasks/node_model_for.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "graphcache/shape_plan.h"
#include "nn/models/model.h"
#include "train/planning/block_rungs.h"
#include "train/planning/run_size.h"
#include "train/tasks/job_data.h"
#include "train/tasks/layer_wise.h"
#include "train/tasks/links.h"
#include "train/tasks/program_trials.h"

namespace permafrost::train {
namespace {

// The most classes: a label must be below this number to be a class. Any other label is a measure.
constexpr double kMaxClasses = 1'000'000;
// The number of batches that the host holds at once: the batches gathered ahead, and the one in the step.
constexpr double kHostNodeBatches = 3;
// The number of copies of a whole graph in memory: the graph itself, and a second graph with other edges and row
// keys, which serves to verify a capture.
constexpr double kWholeGraphCopies = 2;

// Returns true if the first layer begins with means that can be computed from the features as they are stored.
bool BeginsWithMeans(const spec::ModelOptions& model) {
  return spec::TraitsOf(model.architecture).begins_with_means && model.aggregation == spec::Aggregation::kMean &&
         model.input_dropout == 0 && !model.normalize_features;
}

void CheckLabels(const spec::TrainOptions& options, const data::GraphSummary& graph, std::string_view dataset_field,
                 std::string_view prefix, Violations& violations) {
  const auto range = [&] { return absl::StrCat(graph.min_label, "..", graph.max_label); };
  if (graph.num_targets < 1) {
    violations.Add(dataset_field, "its nodes have no labels; at least one target column is needed");
    return;
  }
  const std::string loss_field = absl::StrCat(AbslView(prefix), "loss");
  switch (spec::TraitsOf(options.loss).labels) {
    case spec::LabelKind::kClass:
      if (graph.num_targets > 1) {
        violations.Add(loss_field, absl::StrCat("cross-entropy takes one class a node, and the dataset has ",
                                                graph.num_targets, " targets; use bce, mse or l1"));
      } else if (!graph.integer_labels || graph.min_label < 0 || graph.max_label >= kMaxClasses) {
        violations.Add(loss_field, absl::StrCat("cross-entropy takes whole numbers 0..", kMaxClasses - 1,
                                                " as labels, and the dataset's are ",
                                                graph.integer_labels ? "" : "fractions in ", range()));
      } else if (const auto classes = static_cast<int64_t>(graph.max_label) + 1;
                 !options.class_weights.empty() && std::ssize(options.class_weights) != classes) {
        violations.Add(
            absl::StrCat(AbslView(prefix), "class_weights"),
            absl::StrCat("has ", options.class_weights.size(), " weights; the dataset has ", classes, " classes"));
      }
      break;
    case spec::LabelKind::kBinary:
      if (!graph.integer_labels || graph.min_label < 0 || graph.max_label > 1) {
        violations.Add(loss_field, absl::StrCat("bce takes labels 0 and 1, and the dataset's are ", range()));
      }
      break;
    case spec::LabelKind::kValues:
      break;
  }
}

bool HasEdgeFeatures(const data::GraphSummary& graph) {
  return graph.edge_features.type != data::DataType::kNone && graph.edge_features.width > 0;
}

// Returns what the model's convolutions read of edges.
nn::EncoderInput EdgeInputFor(const spec::ModelOptions& model, const data::GraphSummary& graph,
                              std::string_view dataset_field, std::string_view prefix, Violations& violations) {
  nn::EncoderInput input;
  const std::string field = absl::StrCat(AbslView(prefix), "model.edge_inputs");
  switch (EdgeInputsOf(model, graph)) {
    case data::EdgeInputs::kNone:
      if (spec::TraitsOf(model.architecture).edges != spec::EdgeUse::kNeeded) break;
      violations.Add(field,
                     absl::StrCat(AbslView(spec::kArchitectureNames.Name(model.architecture)),
                                  " reads features of edges, and the dataset's edges have none; accepted: ",
                                  graph.weighted ? "weights, or another model" : "another model, as gin or gatv2"));
      break;
    case data::EdgeInputs::kFeatures:
      if (HasEdgeFeatures(graph)) {
        AddEncoderInput(model, "edge feature", graph.edge_features, dataset_field, violations, input);
      } else {
        violations.Add(field, "is features, and the dataset's edges have none");
      }
      break;
    case data::EdgeInputs::kWeights:
      input.float_columns = 1;
      if (!graph.weighted) violations.Add(field, "is weights, and the dataset's edges have none");
      break;
  }
  return input;
}

// Checks that a block has room for the seeds of any batch, evaluation's included.
void CheckBlockBudget(const spec::TrainOptions& options, const data::GraphSummary& graph, std::string_view prefix,
                      Violations& violations) {
  const int64_t most = options.batching.max_nodes;
  if (most == 0) return;
  int64_t seeds = std::min(options.batch_size, graph.nodes);
  if (options.links.enabled) {
    seeds = MostSeeds(options, options.batch_size, graph.nodes);
    // In an evaluation of temporal links, a sample holds at least one link and its negatives.
    if (options.nodes.is_temporal()) seeds = std::max(seeds, 2 + options.links.eval_negatives);
  }
  if (most >= seeds) return;
  violations.Add(absl::StrCat(AbslView(prefix), "batching.max_nodes"),
                 absl::StrCat(most, " is less than the ", seeds, " seeds that a batch may have; accepted: at least ",
                              seeds, ", or a smaller batch_size"));
}

int64_t MeanDegree(const data::GraphSummary& graph) {
  return (graph.edges + graph.nodes - 1) / std::max<int64_t>(1, graph.nodes);
}

// Returns how many neighbours the last hop draws for a node of mean degree.
double LastDrawn(const data::NeighborSamplingOptions& sampling, const data::GraphSummary& graph) {
  const int64_t fan_out = sampling.fan_outs.back(), degree = MeanDegree(graph);
  if (fan_out == spec::kAllNeighbors) return static_cast<double>(degree);
  return static_cast<double>(sampling.replace ? fan_out : std::min(fan_out, degree));
}

double MostApart(const data::NeighborSamplingOptions& sampling, double drawn) {
  return sampling.max_edges > 0 ? std::min(drawn, static_cast<double>(sampling.max_edges)) : drawn;
}

// Estimates the rows of a step as if every node had the mean in-degree. If there are many seeds, even the largest
// batch has only slightly more rows.
nn::StepRows RowsOf(const data::NeighborSamplingOptions& sampling, int64_t batch_size, int64_t num_layers,
                    const data::GraphSummary& graph) {
  const auto all_nodes = static_cast<double>(graph.nodes), all_edges = static_cast<double>(graph.edges);
  if (sampling.fan_outs.empty()) {
    return {
        .nodes = std::vector(static_cast<size_t>(num_layers) + 1, all_nodes), .edges = all_edges, .graphs = all_nodes};
  }
  const data::BlockSizes block = BlockAtDegree(sampling, batch_size, MeanDegree(graph), graph);
  nn::StepRows rows{.nodes = {}, .edges = static_cast<double>(block.edges), .graphs = static_cast<double>(batch_size)};
  double found = 0;
  for (const int64_t segment : block.nodes) {
    found += static_cast<double>(segment);
    if (sampling.max_nodes > 0) found = std::min(found, static_cast<double>(sampling.max_nodes));
    rows.nodes.push_back(sampling.disjoint ? found : std::min(all_nodes, found));
  }
  // The means of the first layer are computed before the step, so the rows of the last hop are not in the step.
  if (sampling.last_hop_apart) rows.nodes.push_back(rows.nodes.back());
  return rows;
}

// Returns how many pairs a training batch scores; 0 if the job predicts no links.
double PairsOf(const spec::TrainOptions& options, const data::GraphSummary& graph) {
  if (!options.links.enabled) return 0;
  const double links = options.nodes.fan_outs.empty() ? LinkCountOf(options, graph, data::Split::kTrain)
                                                      : static_cast<double>(options.batch_size);
  return links * (1 + static_cast<double>(options.links.negatives));
}

// Returns the shape for which a program's cost is estimated. A pair costs as much as an edge, so the shape has
// max(rows.edges, pairs) edges.
BatchShape ShapeOf(const nn::StepRows& rows, double pairs) {
  return {static_cast<int64_t>(rows.nodes.back()), static_cast<int64_t>(std::max(rows.edges, pairs)),
          static_cast<int64_t>(rows.graphs)};
}

// Returns the bytes of a node's features on the host. For a program, counts the features as dense, and includes
// positions.
double RowBytes(const spec::TrainOptions& options, const data::GraphSummary& graph) {
  if (graph.node_features.type != data::DataType::kSparse || spec::IsProgram(options)) {
    const int64_t positions = spec::IsProgram(options) ? graph.position_columns : 0;
    return sizeof(float) * static_cast<double>(graph.node_features.width + positions);
  }
  const auto nonzeros = static_cast<double>(graph.node_feature_nonzeros);
  return (sizeof(int64_t) + sizeof(float)) * nonzeros / std::max(1.0, static_cast<double>(graph.nodes));
}

// Adds the decoder's cost in a training step: the products of the pairs and their gradients and, for an MLP, its
// layers.
void AddDecoderCost(const spec::TrainOptions& options, const data::GraphSummary& graph, int64_t channels,
                    nn::ModelCost& cost) {
  const double pairs = PairsOf(options, graph);
  const double kept = options.links.score == spec::LinkScore::kDot ? 2 : 5;
  cost.parameters += static_cast<double>(nn::LinkDecoder::Parameters(options.links.score, channels));
  cost.activations += pairs * (kept * static_cast<double>(channels) + 4);
}

// Returns the bytes that an evaluation keeps for each node until it ends: outputs, labels, the id, and the values
// that a metric sorts or divides by. If all nodes are predicted layer by layer, outputs of the split are kept twice.
double EvaluatedRowBytes(const spec::TrainOptions& options, const data::GraphSummary& graph, double outputs) {
  constexpr double kOfMetric = sizeof(std::pair<float, bool>) + 2 * sizeof(double);
  const double copies = options.nodes.layer_wise_evaluation ? 2 : 1;
  return sizeof(float) * (copies * outputs + static_cast<double>(graph.num_targets)) + sizeof(data::NodeId) + kOfMetric;
}

// Returns the most captured graphs that a job holds on the device: one per mode for a whole graph, and one per rung
// for sampled blocks.
int64_t MostGraphs(const spec::TrainOptions& options) {
  const spec::PolicyOptions& policy = options.graph_cache;
  const int64_t modes = EvaluatesOutsideCache(options) ? 1 : 2;
  return graphcache::MostExecutables(policy, modes * (options.nodes.fan_outs.empty() ? 1 : RungsOf(policy)));
}

// Returns the most seeds of a batch.
int64_t SeedsOf(const spec::TrainOptions& options, const data::GraphSummary& graph) {
  return options.links.enabled ? MostSeeds(options, options.batch_size, graph.nodes) : options.batch_size;
}

// Host memory of a mode's batches, in bytes: of one batch, and of all batches in memory at once.
struct HostBatches {
  double one = 0, all = 0;
};

HostBatches HostBatchesOf(const spec::TrainOptions& options, const data::NeighborSamplingOptions& sampling,
                          const nn::StepRows& rows, const data::GraphSummary& graph, const MemoryLimits& limits) {
  // Rows that hold means are twice as wide.
  const double row_bytes = (sampling.last_hop_apart ? 2 : 1) * RowBytes(options, graph) + sizeof(int64_t);
  const data::EdgeInputs edges = EdgeInputsOf(options.model, graph);
  const double edge_bytes = sizeof(int64_t) + sizeof(float) + static_cast<double>(data::EdgeRowBytes(graph, edges));
  const double batch = rows.nodes.back() * row_bytes + edge_bytes * rows.edges;
  if (sampling.fan_outs.empty()) return {.one = batch, .all = kWholeGraphCopies * batch};
  const double apart =
      sampling.last_hop_apart ? MostApart(sampling, rows.nodes.back() * LastDrawn(sampling, graph)) : 0;
  const double of_places = edges == data::EdgeInputs::kNone ? 0 : sizeof(uint64_t) * rows.edges;
  const double sampled = sizeof(data::NodeId) * (rows.nodes.back() + apart) +
                         2 * sizeof(int64_t) * (rows.edges + rows.nodes.back()) + of_places;
  const double ahead = std::min(static_cast<double>(options.nodes.look_ahead) * sampled,
                                static_cast<double>(SampledAheadBytes(limits.process)));
  return {.one = batch, .all = kHostNodeBatches * batch + ahead};
}

RunMemory MemoryOf(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                   const MemoryLimits& limits) {
  const auto out = static_cast<double>(model.num_outputs);
  RunMemory memory;
  AddCopies(options.optimizer, memory);
  if (limits.graphs) memory.executables = MostGraphs(options);
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    // Programs are evaluated on blocks, inside or outside the cache.
    if (mode == Mode::kEval && EvaluatesOutsideCache(options) && !spec::IsProgram(options)) continue;
    const data::NeighborSamplingOptions sampling = SamplingOf(options, mode, graph);
    const int64_t seeds = SeedsOf(options, graph);
    const nn::StepRows rows = RowsOf(sampling, seeds, options.model.num_layers, graph);
    const double pairs = model.program && model.program->scores_pairs ? PairsOf(options, graph) : 0;
    nn::ModelCost cost = model.program ? model.program->Step(ShapeOf(rows, pairs)).model : nn::CostOf(model, rows);
    if (options.links.enabled) AddDecoderCost(options, graph, model.num_outputs, cost);
    memory.cost.parameters = cost.parameters;
    memory.cost.activations = std::max(memory.cost.activations, cost.activations);
    const HostBatches batches = HostBatchesOf(options, sampling, rows, graph, limits);
    memory.batch_bytes = std::max(memory.batch_bytes, batches.all);
    // A whole graph lies on the device.
    if (!sampling.fan_outs.empty()) memory.input_bytes = std::max(memory.input_bytes, batches.one);
  }
  const LinkMemory links = LinkMemoryOf(options, graph, model.in_channels, model.num_outputs);
  memory.batch_bytes += links.host;
  memory.result_bytes = links.result + EvaluatedRowBytes(options, graph, out) *
                                           static_cast<double>(std::max(graph.split_nodes[1], graph.split_nodes[2]));
  if (options.nodes.layer_wise_evaluation) {
    memory.result_bytes += LayerWiseBytes(options, graph, model.in_channels, model.num_outputs);
  }
  return memory;
}

// A table of two parts takes two additional tensors: the rows that are gathered from each part, before the right ones
// are chosen. A captured graph holds both tensors, and so does the run that verifies the graph.
constexpr double kGatheredCopies = 4;
// PyTorch's operators gather the rows over which means are taken. A captured graph holds these rows, and so does the
// run that verifies the graph. The kernel in nn/gpu gathers no rows, but the plan does not know whether that kernel
// will run.
constexpr double kMeansCopies = 2;

}  // namespace

uint64_t GatheringBytes(const spec::TrainOptions& options, const data::GraphSummary& graph) {
  double rows = 0;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (mode == Mode::kEval && EvaluatesOutsideCache(options)) continue;
    const data::NeighborSamplingOptions sampling = SamplingOf(options, mode, graph);
    rows = std::max(rows, RowsOf(sampling, SeedsOf(options, graph), options.model.num_layers, graph).nodes.back());
  }
  return static_cast<uint64_t>(kGatheredCopies * rows * RowBytes(options, graph));
}

uint64_t MeansBytes(const spec::TrainOptions& options, const data::GraphSummary& graph) {
  double neighbors = 0;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (mode == Mode::kEval && EvaluatesOutsideCache(options)) continue;
    const data::NeighborSamplingOptions sampling = SamplingOf(options, mode, graph);
    if (!sampling.last_hop_apart) continue;
    const nn::StepRows rows = RowsOf(sampling, SeedsOf(options, graph), options.model.num_layers, graph);
    neighbors = std::max(neighbors, rows.edges + MostApart(sampling, rows.nodes.back() * LastDrawn(sampling, graph)));
  }
  return static_cast<uint64_t>(kMeansCopies * neighbors * RowBytes(options, graph));
}

uint64_t NodeJobBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                      const MemoryLimits& limits) {
  return ProcessBytes(MemoryOf(options, model, graph, limits), limits);
}

spec::TrainOptions WithProgram(const spec::TrainOptions& options, const JobNodeModel& model,
                               const MadeNodeModel& made) {
  if (!spec::IsProgram(options)) return options;
  spec::TrainOptions own = options;
  own.model.hidden_channels = model.model.hidden_channels;
  if (!made.reads_edge_features) own.model.edge_inputs = spec::EdgeInputs::kNone;
  return own;
}

bool HasRoomForBothModes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                         const MemoryLimits& limits) {
  double fewer = std::numeric_limits<double>::infinity();
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const data::NeighborSamplingOptions sampling = SamplingOf(options, mode, graph);
    const nn::StepRows rows = RowsOf(sampling, SeedsOf(options, graph), options.model.num_layers, graph);
    fewer = std::min(fewer, HostBatchesOf(options, sampling, rows, graph, limits).all);
  }
  const auto process = static_cast<double>(limits.process);
  return static_cast<double>(NodeJobBytes(options, model, graph, limits)) + fewer <= process;
}

uint64_t NodeDeviceBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                         const MemoryLimits& limits) {
  return DeviceBytes(MemoryOf(options, model, graph, limits), limits);
}

data::NeighborSamplingOptions SamplingOf(const spec::TrainOptions& options, Mode mode,
                                         const data::GraphSummary& graph) {
  const spec::NodeTrainingOptions& nodes = options.nodes;
  const bool own = mode == Mode::kEval && !nodes.eval_fan_outs.empty();
  const std::vector<int64_t>& fan_outs = own ? nodes.eval_fan_outs : nodes.fan_outs;
  const bool dense =
      graph.node_features.type != data::DataType::kNone && graph.node_features.type != data::DataType::kSparse;
  const spec::BatchingOptions& bounds = options.batching;
  // max_nodes bounds the rows of a block, including the rows of the last hop. A last hop that is kept apart has no
  // rows, so it is not possible with this bound.
  const bool may_be_apart = fan_outs.size() >= 2 && bounds.max_nodes == 0;
  return {.fan_outs = fan_outs,
          .replace = nodes.replace,
          .weighted = nodes.weighted,
          .last_hop_apart = dense && may_be_apart && BeginsWithMeans(options.model),
          .disjoint = nodes.disjoint || nodes.is_temporal(),
          .temporal = nodes.temporal,
          .sampler = nodes.sampler,
          .max_nodes = bounds.max_nodes,
          .max_edges = bounds.max_edges,
          .seed = options.seed};
}

double LayerWiseBytes(const spec::TrainOptions& options, const data::GraphSummary& graph, int64_t in_channels,
                      int64_t outputs) {
  const spec::ModelOptions& model = options.model;
  // Maxima and GINE's messages are computed from the features before any product. For this, sparse rows are made
  // dense.
  const bool of_inputs =
      model.aggregation == spec::Aggregation::kMax || model.architecture == spec::Architecture::kGine;
  const auto widest =
      static_cast<double>(std::max({model.hidden_channels, outputs, of_inputs ? in_channels : int64_t{0}}));
  // The matrices are a layer's input, its projection (at most twice as wide), and its output: 4 widths. If the model
  // joins layers, two more matrices hold the joined outputs before and after this layer.
  const double matrices = model.jumping_knowledge == spec::JumpingKnowledge::kLast ? 4 : 6;
  double values = matrices * static_cast<double>(graph.nodes) * widest;
  if (const data::EdgeInputs edges = EdgeInputsOf(model, graph); edges != data::EdgeInputs::kNone) {
    // The feature rows of a chunk's edges, and the values computed from them. A chunk has the edges of at least one
    // node.
    const auto row = static_cast<double>(data::EdgeRowBytes(graph, edges)) / sizeof(float);
    const double width = std::max(widest, row);
    const double most = std::max(static_cast<double>(kChunkEdgeValues), static_cast<double>(graph.max_degree) * width);
    values += 3 * std::min(static_cast<double>(graph.edges) * width, most);
  }
  return sizeof(float) * values;
}

data::EdgeInputs EdgeInputsOf(const spec::ModelOptions& model, const data::GraphSummary& graph) {
  if (spec::TraitsOf(model.architecture).edges == spec::EdgeUse::kNone) return data::EdgeInputs::kNone;
  switch (model.edge_inputs) {
    case spec::EdgeInputs::kFeatures:
      return data::EdgeInputs::kFeatures;
    case spec::EdgeInputs::kWeights:
      return data::EdgeInputs::kWeights;
    case spec::EdgeInputs::kNone:
      return data::EdgeInputs::kNone;
    case spec::EdgeInputs::kAuto:
      break;
  }
  return HasEdgeFeatures(graph) ? data::EdgeInputs::kFeatures : data::EdgeInputs::kNone;
}

absl::StatusOr<JobNodeModel> NodeModelFor(const spec::TrainOptions& options, const data::GraphSummary& stored,
                                          const MemoryLimits& limits, std::string_view prefix) {
  const spec::NodeInputs inputs = NodeInputsOf(options.model.node_inputs, stored);
  const data::GraphSummary summary = WithNodeInputs(options.model, stored);
  Violations violations;
  const std::string dataset_field = absl::StrCat(AbslView(prefix), "dataset");
  if (options.model.level != spec::ModelLevel::kNode || !spec::TraitsOf(options.model.architecture).of_nodes) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.architecture"),
                   absl::StrCat(AbslView(spec::kArchitectureNames.Name(options.model.architecture)),
                                " was to predict for whole graphs of a set, and the dataset is one graph of ",
                                summary.nodes, " nodes; use ", ModelsOf(spec::ModelLevel::kNode, " or ")));
    return violations.ToStatus();
  }
  if (summary.node_features.type == data::DataType::kNone || summary.node_features.width == 0) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.node_inputs"),
                   absl::StrCat("the dataset's nodes have no features; accepted: ",
                                spec::IsProgram(options) ? "" : "learned, ", "degree, constant"));
  } else if (inputs == spec::NodeInputs::kLearned && spec::IsProgram(options)) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.node_inputs"),
                   "the dataset's nodes have no features, and for a program the server learns none; accepted: degree, "
                   "constant");
  }
  const bool links = options.links.enabled;
  if (!links && summary.split_nodes[static_cast<size_t>(data::Split::kTrain)] == 0) {
    violations.Add(dataset_field, "its train split is empty; at least one node is needed");
  }
  if (options.nodes.weighted && !summary.weighted) {
    violations.Add(absl::StrCat(AbslView(prefix), "neighbor_sampling.weighted"),
                   "the dataset's edges have no weights to draw by");
  }
  if (options.nodes.is_temporal() && !summary.timestamped) {
    violations.Add(absl::StrCat(AbslView(prefix), "neighbor_sampling.temporal"),
                   "the dataset's edges have no timestamps");
  }
  if (links && options.links.given && !summary.links.given) {
    violations.Add(absl::StrCat(AbslView(prefix), "link_prediction.split"),
                   "dataset, and the dataset divides no links; accepted: drawn");
  }
  if (links && summary.edges == summary.self_loops) {
    violations.Add(dataset_field, "it has no edges between two nodes; at least one is needed to predict links");
  }
  if (!links) CheckLabels(options, summary, dataset_field, prefix, violations);
  CheckBlockBudget(options, summary, prefix, violations);
  const nn::EncoderInput edge = EdgeInputFor(options.model, summary, dataset_field, prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  const int64_t classes = static_cast<int64_t>(summary.max_label) + 1;
  JobNodeModel model;
  static_cast<nn::NodeModelOptions&>(model) = {
      .model = options.model,
      .in_channels = inputs == spec::NodeInputs::kLearned ? options.model.hidden_channels : summary.node_features.width,
      .num_outputs = links                                                            ? options.model.hidden_channels
                     : spec::TraitsOf(options.loss).labels == spec::LabelKind::kClass ? classes
                                                                                      : summary.num_targets,
      .embedded_columns = inputs == spec::NodeInputs::kLearned ? summary.nodes : 0,
      .edge = edge};
  if (spec::IsProgram(options)) {
    PF_ASSIGN_OR_RETURN(model.program, MeasureNodeProgram(options, model, ProgramDataOf(summary), prefix));
    if (links && model.program->columns > 0) model.num_outputs = model.program->columns;
    model.model.hidden_channels = model.num_outputs;
  }
  CheckFits(MemoryOf(options, model, summary, limits), limits,
            options.nodes.fan_outs.empty() ? "the whole graph in every step" : "a sampled batch", prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return model;
}

bool UsesEdgeWeights(const spec::TrainOptions& options, const data::Graph& graph) {
  return spec::TraitsOf(options.model.architecture).weighs_messages && graph.summary().weighted;
}

absl::StatusOr<at::Tensor> ReadLabels(const data::Graph& graph, std::span<const data::NodeId> nodes) {
  const data::Column<float>& column = graph.view().labels;
  const int64_t targets = graph.view().num_targets;
  if (column.empty()) {
    return at::full({std::ssize(nodes), targets}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
  }
  at::Tensor labels = at::empty({std::ssize(nodes), targets}, at::kFloat);
  float* out = labels.mutable_data_ptr<float>();
  for (const data::NodeId node : nodes) {
    const uint64_t begin = uint64_t{node} * static_cast<uint64_t>(targets),
                   end = begin + static_cast<uint64_t>(targets);
    if (!column.Touch(begin, end)) return column.status();
    out = std::copy(column.data() + begin, column.data() + end, out);
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return labels;
}

absl::StatusOr<std::array<std::vector<data::NodeId>, 3>> ReadSplits(const data::Graph& graph) {
  std::array<std::vector<data::NodeId>, 3> splits;
  for (size_t i = 0; i < splits.size(); ++i) {
    const data::Column<data::NodeId>& column = graph.view().splits[i];
    if (!column.Touch(0, column.size())) return column.status();
    splits[i].assign(column.data(), column.data() + column.size());
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return splits;
}

}  // namespace permafrost::train
