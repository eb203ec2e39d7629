// The model of sets of small graphs: encoders, layers of message passing, pooling, an MLP head.
//   h = encoding of the nodes' features
//   h = dropout(relu(norm(convolution(h)))) (+ h)     num_layers times
//   prediction = mlp(pool(h, or what jumping knowledge makes of all layers))
// With a virtual node, each graph has an extra row. Each layer first adds this row to the nodes of its graph; the
// nodes then update the row. Source of the virtual node: Gilmer et al. 2017, as OGB's GNN_node_Virtualnode. Parameter
// names are those of the equivalent PyG module in client/python/src/permafrost/models/graph_sets.py.

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/step.h"
#include "nn/models/convolution.h"
#include "nn/models/model.h"
#include "nn/models/parts.h"
#include "nn/ops/chunks.h"
#include "nn/ops/gine_layer.h"
#include "nn/ops/linear.h"
#include "nn/ops/lowering.h"
#include "nn/ops/rows_by_index.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// The tensors that all layers of a batch share.
struct SetGraph {
  // Source, target and their index; for GINE also the edge rows.
  GineEdges edges;
  ConvEdges conv;     // for models other than GIN and GINE: the edges, with the norm of messages
  Tensor edge_rows;   // edge rows of attention, as in ConvCall; undefined: there are none
  Tensor edge_code;   // as in ConvCall
  Tensor real_nodes;  // [1] int64
  Tensor step;        // [1] int64
  Tensor row_keys;    // of dropout; undefined: each row's own position
  Mode mode = Mode::kTrain;
};

// A layer: convolution, norm, ReLU, dropout. Threads: the device thread. The tensors belong to the model.
class SetLayer {
 public:
  virtual ~SetLayer() = default;
  // x: [N, hidden]. Returns [N, hidden]. Padding rows may hold any finite values, and no real row sees them.
  virtual Tensor Forward(const Tensor& x, const SetGraph& graph) const = 0;
};

// Returns whether the layers read a row for each edge. GINE always does; GATv2 does if edges have features.
bool ReadsEdges(const GraphModelOptions& options) {
  if (options.model.architecture == spec::Architecture::kGine) return true;
  return options.model.architecture == spec::Architecture::kGatv2 && options.edge.has_features();
}

bool IsGin(spec::Architecture architecture) {
  return architecture == spec::Architecture::kGin || architecture == spec::Architecture::kGine;
}

ConvShape ShapeOf(const GraphModelOptions& options) {
  const int64_t hidden = options.model.hidden_channels;
  return {.in = hidden,
          .out = hidden,
          .heads = options.model.heads,
          .joins_heads = true,
          .edge_channels = ReadsEdges(options) ? hidden : 0,
          .aggregation = options.model.aggregation,
          .of_nodes = false};
}

// Returns x with its padding rows set to 0. All padding edges run from the last row, a padding row, to itself. So,
// without a norm, this row would grow from layer to layer until it is infinite. An infinite row makes the weights'
// gradients NaN, even though its own gradient is 0.
Tensor WithoutPadding(const Tensor& x, const Tensor& real_nodes) {
  const Tensor is_real = at::arange(x.size(0), real_nodes.options()).lt(real_nodes).unsqueeze(1);
  return at::where(is_real, x, at::zeros({}, x.options()));
}

// GIN and GINE with batch norm, as one operator.
class FusedGinLayer final : public SetLayer {
 public:
  FusedGinLayer(WeightMaker& weights, int64_t layer, const GraphModelOptions& options, uint64_t seed)
      : key_{.seed = seed, .layer = layer}, p_(options.model.dropout) {
    const int64_t hidden = options.model.hidden_channels;
    const std::string conv = absl::StrCat("convs.", layer), norm = absl::StrCat("norms.", layer, ".module");
    const GinNames names = GinNamesOf(ShapeOf(options));
    // GINEConv keeps an untrained eps as a buffer. It is 0, and takes no part in the sum.
    weights.Buffer(conv + ".eps", {1}, 0);
    const Linear first = weights.MakeLinear(conv + names.first, hidden, hidden),
                 second = weights.MakeLinear(conv + names.second, hidden, hidden);
    weights_ = {.w1 = first.weight,
                .b1 = first.bias,
                .w2 = second.weight,
                .b2 = second.bias,
                .norm_weight = weights.Filled(norm + ".weight", {hidden}, 1),
                .norm_bias = weights.Filled(norm + ".bias", {hidden}, 0),
                .running_mean = weights.Buffer(norm + ".running_mean", {hidden}, 0),
                .running_var = weights.Buffer(norm + ".running_var", {hidden}, 1),
                .batches_tracked = weights.Buffer(norm + ".num_batches_tracked", {}, 0, at::kLong)};
  }

  Tensor Forward(const Tensor& x, const SetGraph& graph) const override {
    if (graph.mode == Mode::kEval) return GineLayerEval(x, graph.edges, graph.real_nodes, weights_);
    if (!weights_.norm_weight.requires_grad()) return ForwardFixed(x, graph);
    return GineLayer(x, graph.edges, graph.real_nodes, weights_,
                     {.step = graph.step, .row_keys = graph.row_keys, .key = key_, .p = p_});
  }

 private:
  // Training with a fixed norm, which normalises by its running statistics and leaves them unchanged.
  Tensor ForwardFixed(const Tensor& x, const SetGraph& graph) const {
    const GineWeights& w = weights_;
    const Tensor product = Mlp(SumGineMessages(x, graph.edges), w.w1, w.b1, w.w2, w.b2);
    const Tensor y = FixedBatchNormRelu(product, w.norm_weight, w.norm_bias, w.running_mean, w.running_var);
    return WithoutPadding(Dropout(y, graph.step, key_, p_, graph.row_keys), graph.real_nodes);
  }

  DropoutKey key_;
  double p_;
  GineWeights weights_;
};

// GIN and GINE with layer norm or no norm.
class GinLayer final : public SetLayer {
 public:
  GinLayer(WeightMaker& weights, int64_t layer, const GraphModelOptions& options, uint64_t seed)
      : key_{.seed = seed, .layer = layer},
        p_(options.model.dropout),
        has_norm_(options.model.norm != spec::Norm::kNone) {
    const int64_t hidden = options.model.hidden_channels;
    const std::string conv = absl::StrCat("convs.", layer);
    const GinNames names = GinNamesOf(ShapeOf(options));
    weights.Buffer(conv + ".eps", {1}, 0);
    first_ = weights.MakeLinear(conv + names.first, hidden, hidden);
    second_ = weights.MakeLinear(conv + names.second, hidden, hidden);
    norm_.emplace(weights, absl::StrCat("norms.", layer), options.model.norm, hidden);
  }

  Tensor Forward(const Tensor& x, const SetGraph& graph) const override {
    const bool training = graph.mode == Mode::kTrain;
    const Tensor sum = SumGineMessages(x, graph.edges);
    const Tensor product = Mlp(sum, first_.weight, first_.bias, second_.weight, second_.bias);
    const Tensor y = norm_->Activate(
        product, {.count = graph.real_nodes, .keys = {}}, training,
        {.relu = true, .step = graph.step, .key = key_, .p = training ? p_ : 0, .row_keys = graph.row_keys});
    return has_norm_ ? y : WithoutPadding(y, graph.real_nodes);
  }

 private:
  DropoutKey key_;
  double p_;
  bool has_norm_;
  Linear first_, second_;
  std::optional<RowNorm> norm_;
};

class ConvLayer final : public SetLayer {
 public:
  ConvLayer(WeightMaker& weights, int64_t layer, const GraphModelOptions& options, uint64_t seed)
      : key_{.seed = seed, .layer = layer},
        p_(options.model.dropout),
        has_norm_(options.model.norm != spec::Norm::kNone),
        convolution_(
            ConvolutionOf(options.model.architecture).make(weights, absl::StrCat("convs.", layer), ShapeOf(options))),
        norm_(weights, absl::StrCat("norms.", layer), options.model.norm, options.model.hidden_channels) {}

  Tensor Forward(const Tensor& x, const SetGraph& graph) const override {
    const bool training = graph.mode == Mode::kTrain;
    const double p = training ? p_ : 0;
    const ConvActivation activation{.relu = true, .step = graph.step, .key = key_, .p = p, .row_keys = graph.row_keys};
    ConvCall call{.edges = graph.conv,
                  .edge_rows = graph.edge_rows,
                  .edge_code = graph.edge_code,
                  .activation = activation,
                  .attention_p = p};
    if (has_norm_) {
      call.activation.relu = false;
      call.activation.p = 0;
    }
    const Tensor h =
        convolution_->Apply({.dense = x, .feature_offsets = {}, .feature_columns = {}, .feature_values = {}}, call);
    return has_norm_ ? norm_.Activate(h, {.count = graph.real_nodes, .keys = {}}, training, activation) : h;
  }

 private:
  DropoutKey key_;
  double p_;
  bool has_norm_;
  std::unique_ptr<Convolution> convolution_;
  RowNorm norm_;
};

// Makes layer `layer` of the model. Its dropout masks follow from `seed`.
std::unique_ptr<SetLayer> MakeSetLayer(WeightMaker& weights, int64_t layer, const GraphModelOptions& options,
                                       uint64_t seed) {
  if (!IsGin(options.model.architecture)) return std::make_unique<ConvLayer>(weights, layer, options, seed);
  if (options.model.norm == spec::Norm::kBatch) return std::make_unique<FusedGinLayer>(weights, layer, options, seed);
  return std::make_unique<GinLayer>(weights, layer, options, seed);
}

// Returns the cost of one layer for `nodes` nodes and `edges` edges. Each layer of GIN and GINE keeps its sum, hidden
// product, product and output. The backward pass of a layer holds the gradients of its output, its input and its
// three inner tensors. It also holds the packed rows, and each chunk's share of the weights' gradients.
ConvCost SetLayerCost(const GraphModelOptions& options, double nodes, double edges) {
  const auto hidden = static_cast<double>(options.model.hidden_channels);
  const spec::Norm norm = options.model.norm;
  ConvCost cost;
  if (IsGin(options.model.architecture)) {
    const double of_layer = 2 * hidden * hidden + 2 * hidden;
    const auto chunks =
        static_cast<double>(RowChunks::CountOf(static_cast<int64_t>(nodes), static_cast<int64_t>(of_layer)));
    cost = {.parameters = of_layer, .saved = 4 * nodes * hidden, .backward = 6 * nodes * hidden + chunks * of_layer};
    // Without the fused operator, each message is a row in memory.
    if (norm != spec::Norm::kBatch) cost.saved += (edges + nodes) * hidden;
    if (norm != spec::Norm::kBatch) cost.backward += 2 * edges * hidden;
    if (norm == spec::Norm::kNone) cost.saved += nodes * hidden;
  } else {
    cost = ConvolutionOf(options.model.architecture)
               .cost(ShapeOf(options), {.sources = nodes, .targets = nodes, .edges = edges, .first = false});
    if (norm != spec::Norm::kNone) cost.saved += 2 * nodes * hidden;
    if (norm != spec::Norm::kNone) cost.backward += 2 * nodes * hidden;
    if (options.model.dropout > 0 && norm != spec::Norm::kNone) cost.saved += nodes * hidden;
  }
  cost.parameters += RowNorm::Parameters(norm, hidden);
  return cost;
}

// Keys the virtual node's dropout masks apart from the layers' masks.
constexpr int64_t kVirtualMasks = 1 << 19;

int64_t HeadWidth(const spec::ModelOptions& model) { return std::max<int64_t>(1, JoinedWidth(model) / 2); }

// Threads: the device thread. Owns its tensors.
class GraphSetModel final : public GraphModel {
 public:
  GraphSetModel(const GraphModelOptions& options, uint64_t seed, at::Device device);
  static ModelCost Cost(const GraphModelOptions& options, const StepRows& rows);

  Tensor Forward(const GraphSetBatch& batch, Mode mode) override;
  TensorSet& tensors() override { return tensors_; }
  std::string Describe() const override;

 private:
  // The weights by which one layer computes the next row of a graph's virtual node. The last layer has none.
  struct VirtualLayer {
    Linear first, second;
    RowNorm first_norm, second_norm;
  };
  SetGraph GraphOf(const GraphSetBatch& batch, Mode mode) const;
  Tensor NextVirtual(int64_t layer, const Tensor& h, const Tensor& of_graphs, const GraphSetBatch& batch,
                     Mode mode) const;

  GraphModelOptions options_;
  uint64_t seed_;
  TensorSet tensors_;
  std::optional<Encoder> node_encoder_, edge_encoder_;
  std::vector<std::unique_ptr<SetLayer>> layers_;
  Tensor virtual_row_;  // [1, hidden]
  std::vector<VirtualLayer> virtual_layers_;
  Linear head_first_, head_second_;
};

GraphSetModel::GraphSetModel(const GraphModelOptions& options, uint64_t seed, at::Device device)
    : options_(options), seed_(seed) {
  WeightMaker weights(seed, device, tensors_);
  const spec::ModelOptions& model = options.model;
  const int64_t hidden = model.hidden_channels;
  node_encoder_.emplace(weights, "node_encoder", options.node, hidden);
  if (ReadsEdges(options)) edge_encoder_.emplace(weights, "edge_encoder", options.edge, hidden);
  for (int64_t l = 0; l < model.num_layers; ++l) layers_.push_back(MakeSetLayer(weights, l, options, seed));
  if (model.virtual_node) {
    virtual_row_ = weights.Filled("virtualnode_embedding.weight", {1, hidden}, 0);
    for (int64_t l = 0; l + 1 < model.num_layers; ++l) {
      const std::string name = absl::StrCat("mlp_virtualnode_list.", l, ".");
      const Linear first = weights.MakeLinear(name + "0", hidden, 2 * hidden);
      const RowNorm first_norm(weights, name + "1", spec::Norm::kBatch, 2 * hidden);
      const Linear second = weights.MakeLinear(name + "3", 2 * hidden, hidden);
      virtual_layers_.push_back({first, second, first_norm, RowNorm(weights, name + "4", spec::Norm::kBatch, hidden)});
    }
  }
  head_first_ = weights.MakeLinear("head.0", JoinedWidth(model), HeadWidth(model));
  head_second_ = weights.MakeLinear("head.2", HeadWidth(model), options.num_targets);
}

// Counts the layers, the encoders' outputs, both orders of the edges, the head, and optional parts such as the virtual
// node.
ModelCost GraphSetModel::Cost(const GraphModelOptions& options, const StepRows& rows) {
  const spec::ModelOptions& model = options.model;
  const auto hidden = static_cast<double>(model.hidden_channels), layers = static_cast<double>(model.num_layers),
             targets = static_cast<double>(options.num_targets), joined = static_cast<double>(JoinedWidth(model)),
             head = static_cast<double>(HeadWidth(model)), nodes = rows.nodes.front();
  const ConvCost layer = SetLayerCost(options, nodes, rows.edges);
  ModelCost cost;
  cost.parameters = layers * layer.parameters + head * (joined + 1 + targets) + targets +
                    Encoder::Parameters(options.node, hidden) +
                    (ReadsEdges(options) ? Encoder::Parameters(options.edge, hidden) : 0);
  cost.activations = layers * layer.saved + layer.backward + nodes * hidden + 3 * rows.edges + 2 * nodes +
                     rows.graphs * (3 * joined + 4 * targets);
  if (ReadsEdges(options)) cost.activations += Encoder::CostOfRows(options.edge, rows.edges, hidden);
  if (model.residual) cost.activations += layers * nodes * hidden;
  if (model.jumping_knowledge != spec::JumpingKnowledge::kLast) cost.activations += 2 * nodes * hidden * (layers - 1);
  if (model.virtual_node) {
    cost.parameters += hidden + (layers - 1) * (4 * hidden * hidden + 3 * hidden + 6 * hidden);
    cost.activations += layers * (2 * nodes * hidden + 9 * rows.graphs * hidden);
  }
  return cost;
}

SetGraph GraphSetModel::GraphOf(const GraphSetBatch& batch, Mode mode) const {
  const int64_t nodes = batch.graph_of_node.size(0), count = batch.edge_source.size(0);
  SetGraph graph{
      .edges = {.source = batch.edge_source, .target = batch.edge_target, .index = {}, .rows = {}, .code = {}},
      .conv = {},
      .edge_rows = {},
      .edge_code = {},
      .real_nodes = batch.real_nodes,
      .step = batch.step,
      .row_keys = batch.node_keys,
      .mode = mode};
  const bool fused = IsGin(options_.model.architecture) && options_.model.norm == spec::Norm::kBatch
                         ? HasColumnKernels(tensors_.parameters().front().value, nodes)
                         : IsFused(batch.edge_source);
  if (fused) graph.edges.index = IndexEdges(batch.edge_source, batch.edge_target, nodes);
  const spec::Architecture architecture = options_.model.architecture;
  if (architecture == spec::Architecture::kGine) edge_encoder_->Encode(batch.edge_features, count, graph.edges);
  if (architecture == spec::Architecture::kGine || architecture == spec::Architecture::kGin) return graph;
  if (edge_encoder_) {
    GineEdges encoded{.source = batch.edge_source, .target = {}, .index = {}, .rows = {}, .code = {}};
    edge_encoder_->Encode(batch.edge_features, count, encoded);
    graph.edge_rows = encoded.rows;
    graph.edge_code = encoded.code;
  }
  const EdgeIndex& index = graph.edges.index;
  ConvEdges& conv = graph.conv;
  // searchsorted finds the offsets, because targets rise.
  conv.offsets = fused ? index.in_offsets.to(at::kLong)
                       : at::searchsorted(batch.edge_target, at::arange(nodes + 1, batch.edge_target.options()));
  conv.sources = batch.edge_source;
  conv.transpose = {index.out_offsets, index.out_targets, index.out_edges};
  const MessageNorm norm = ConvolutionOf(architecture)
                               .norm(conv.offsets, conv.sources, {}, nodes,
                                     tensors_.parameters().front().value.scalar_type(), graph.edge_rows.defined());
  conv.weights = norm.weights;
  conv.self = norm.self;
  conv.scale = norm.scale;
  return graph;
}

Tensor GraphSetModel::NextVirtual(int64_t layer, const Tensor& h, const Tensor& of_graphs, const GraphSetBatch& batch,
                                  Mode mode) const {
  const VirtualLayer& own = virtual_layers_[static_cast<size_t>(layer)];
  const bool training = mode == Mode::kTrain;
  const RealRowsOf real{.count = batch.real_graphs, .keys = {}};
  ConvActivation activation{.relu = true, .step = batch.step, .key = {}, .p = 0, .row_keys = batch.graph_keys};
  const Tensor sum = PoolRows(h, batch.graph_of_node, batch.padded_graphs, spec::Pooling::kSum) + of_graphs;
  const Tensor wide = own.first_norm.Activate(own.first(sum), real, training, activation);
  activation.key = {.seed = seed_, .layer = kVirtualMasks + layer};
  activation.p = training ? options_.model.dropout : 0;
  const Tensor next = own.second_norm.Activate(own.second(wide), real, training, activation);
  return options_.model.residual ? next + of_graphs : next;
}

Tensor GraphSetModel::Forward(const GraphSetBatch& batch, Mode mode) {
  const spec::ModelOptions& model = options_.model;
  Tensor h = (*node_encoder_)(batch.node_features, batch.graph_of_node.size(0));
  const SetGraph graph = GraphOf(batch, mode);
  Tensor of_graphs;
  if (model.virtual_node) of_graphs = virtual_row_.expand({batch.padded_graphs, virtual_row_.size(1)});
  std::vector<Tensor> outputs;
  for (int64_t l = 0; l < model.num_layers; ++l) {
    if (model.virtual_node) h = h + SelectRows(of_graphs, batch.graph_of_node);
    const Tensor out = layers_[static_cast<size_t>(l)]->Forward(h, graph);
    if (model.virtual_node && l + 1 < model.num_layers) of_graphs = NextVirtual(l, h, of_graphs, batch, mode);
    h = model.residual ? out + h : out;
    if (model.jumping_knowledge != spec::JumpingKnowledge::kLast) outputs.push_back(h);
  }
  if (!outputs.empty()) h = Join(outputs, model.jumping_knowledge);
  const Tensor pooled = PoolRows(h, batch.graph_of_node, batch.padded_graphs, model.pooling);
  return Mlp(pooled, head_first_.weight, head_first_.bias, head_second_.weight, head_second_.bias);
}

std::string GraphSetModel::Describe() const {
  const auto encoder = [](const EncoderInput& in) {
    return nlohmann::json{{"categories", in.categories}, {"float_columns", in.float_columns}};
  };
  const spec::ModelOptions& model = options_.model;
  nlohmann::json spec{{"architecture", spec::kArchitectureNames.Name(model.architecture)},
                      {"level", spec::kModelLevelNames.Name(spec::ModelLevel::kGraph)},
                      {"hidden_channels", model.hidden_channels},
                      {"num_layers", model.num_layers},
                      {"pooling", spec::kPoolingNames.Name(model.pooling)},
                      {"dropout", model.dropout},
                      {"heads", model.heads},
                      {"aggregation", spec::kAggregationNames.Name(model.aggregation)},
                      {"norm", spec::kNormNames.Name(model.norm)},
                      {"residual", model.residual},
                      {"jumping_knowledge", spec::kJumpingKnowledgeNames.Name(model.jumping_knowledge)},
                      {"virtual_node", model.virtual_node},
                      {"num_targets", options_.num_targets},
                      {"node", encoder(options_.node)},
                      {"edge", encoder(options_.edge)}};
  // These inputs are made from the edges, so whoever loads the exported model must make them too.
  if (model.node_inputs == spec::NodeInputs::kDegree || model.node_inputs == spec::NodeInputs::kConstant) {
    spec["node_inputs"] = spec::kNodeInputsNames.Name(model.node_inputs);
  }
  return spec.dump();
}

}  // namespace

std::unique_ptr<GraphModel> MakeGraphModel(const GraphModelOptions& options, uint64_t seed, at::Device device) {
  CheckLevel(options.model.architecture, spec::ModelLevel::kGraph);
  return std::make_unique<GraphSetModel>(options, seed, device);
}

ModelCost CostOf(const GraphModelOptions& options, const StepRows& rows) { return GraphSetModel::Cost(options, rows); }

}  // namespace permafrost::nn
