// The node-level model: a stack of convolutions, each followed by a norm, ReLU and dropout.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nn/models/convolution.h"
#include "nn/models/model.h"
#include "nn/models/parts.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Keys the input's dropout masks apart from the layers' masks.
constexpr int64_t kInputMasks = 1 << 21;

bool IsJoined(const spec::ModelOptions& model) { return model.jumping_knowledge != spec::JumpingKnowledge::kLast; }
// Returns whether the layer's output is the prediction. If it is, the layer has no norm, ReLU or dropout.
bool IsOutput(const spec::ModelOptions& model, int64_t layer) {
  return layer + 1 == model.num_layers && !IsJoined(model);
}

ConvShape ShapeOf(const NodeModelOptions& options, int64_t layer) {
  const spec::ModelOptions& model = options.model;
  const bool output = IsOutput(model, layer);
  return {.in = layer == 0 ? options.in_channels : model.hidden_channels,
          .out = output ? options.num_outputs : model.hidden_channels,
          .heads = model.heads,
          .joins_heads = !output,
          .edge_channels = options.edge.categories.empty() ? options.edge.float_columns : model.hidden_channels,
          .aggregation = model.aggregation};
}

// Returns the values of sparse rows; ones if they have none.
Tensor ValuesOf(const LayerWiseModel::InputRows& rows) {
  if (rows.feature_values.defined()) return rows.feature_values;
  return at::ones({rows.feature_columns.size(0)}, rows.feature_columns.options().dtype(at::kFloat));
}

// Divides each row by the sum of its magnitudes. Rows of zeros stay unchanged.
LayerWiseModel::InputRows Normalised(LayerWiseModel::InputRows rows) {
  if (rows.dense.defined()) {
    const Tensor sums = rows.dense.abs().sum(1, /*keepdim=*/true);
    rows.dense = rows.dense / at::where(sums.gt(0), sums, at::ones({}, sums.options()));
    return rows;
  }
  const Tensor entries = at::arange(rows.feature_columns.size(0), rows.feature_columns.options());
  const Tensor row = SegmentOfEntry(rows.feature_offsets, entries.size(0));
  const Tensor values = ValuesOf(rows);
  const Tensor sums = SegmentSum(values.abs().unsqueeze(1), rows.feature_offsets, entries, {}).squeeze(1);
  const Tensor divisors = at::where(sums.gt(0), sums, at::ones({}, sums.options()));
  rows.feature_values = values / SelectRows(divisors, row.clamp_max(divisors.size(0) - 1));
  return rows;
}

// Edge rows, and `code`, the row of each edge. If code is undefined, edge e has row e.
struct EncodedEdges {
  Tensor rows, code;
};

// Threads: the device thread. Owns its tensors.
class LayeredModel final : public LayerWiseModel {
 public:
  LayeredModel(const NodeModelOptions& options, uint64_t seed, at::Device device);
  static ModelCost Cost(const NodeModelOptions& options, const StepRows& rows);

  Tensor Forward(const NodeBlock& block, Mode mode) override;
  Tensor Project(int64_t layer, const InputRows& rows) override;
  int64_t projected_width(int64_t layer) const override;
  Tensor InverseSqrtDegrees(const Chunk& chunk) const override;
  Tensor Combine(int64_t layer, const Tensor& projected, const Chunk& chunk, const Tensor& input) override;
  bool joins() const override { return joining_.has_value(); }
  Tensor JoinOutput(int64_t layer, const Tensor& before, const Tensor& output) const override;
  TensorSet& tensors() override { return tensors_; }
  std::string Describe() const override;

 private:
  // Returns the embedded rows if sparse features are embedded, else the rows unchanged.
  InputRows Embedded(InputRows rows) const;
  // Returns the features, normalised, embedded and with dropout as the options say.
  InputRows Input(const NodeBlock& block, Mode mode) const;
  // Returns edge features in the form that convolutions read; undefined if they read none.
  EncodedEdges Encoded(const Tensor& edge_features) const;
  at::ScalarType type() const { return tensors_.parameters().front().value.scalar_type(); }

  NodeModelOptions options_;
  uint64_t seed_;
  TensorSet tensors_;
  const ConvolutionKind& kind_;
  Tensor embedding_;                     // undefined: features are not embedded
  std::optional<Encoder> edge_encoder_;  // for categories
  std::vector<std::unique_ptr<Convolution>> convolutions_;
  std::vector<RowNorm> norms_;     // for layers that are followed by ReLU
  std::optional<Linear> joining_;  // for jumping knowledge
};

LayeredModel::LayeredModel(const NodeModelOptions& options, uint64_t seed, at::Device device)
    : options_(options), seed_(seed), kind_(ConvolutionOf(options.model.architecture)) {
  WeightMaker weights(seed, device, tensors_);
  const spec::ModelOptions& model = options.model;
  if (options.embedded_columns > 0) {
    embedding_ = weights.Normal("embedding.weight", {options.embedded_columns, options.in_channels});
  }
  if (!options.edge.categories.empty()) {
    edge_encoder_.emplace(weights, "edge_encoder", options.edge, model.hidden_channels);
  }
  for (int64_t l = 0; l < model.num_layers; ++l) {
    convolutions_.push_back(kind_.make(weights, absl::StrCat("convs.", l), ShapeOf(options, l)));
  }
  for (int64_t l = 0; l < model.num_layers && !IsOutput(model, l); ++l) {
    norms_.emplace_back(weights, absl::StrCat("norms.", l), model.norm, model.hidden_channels);
  }
  if (IsJoined(model)) joining_ = weights.MakeLinear("lin", JoinedWidth(model), options.num_outputs);
}

// Counts the convolutions and all other parts. For each edge, GCN's norm before the first layer takes three values of
// 8 bytes. The transpose takes less.
ModelCost LayeredModel::Cost(const NodeModelOptions& options, const StepRows& rows) {
  const spec::ModelOptions& model = options.model;
  const ConvolutionKind& kind = ConvolutionOf(model.architecture);
  const auto layers = static_cast<size_t>(model.num_layers);
  const auto hidden = static_cast<double>(model.hidden_channels), outputs = static_cast<double>(options.num_outputs);
  ModelCost cost;
  const auto in = static_cast<double>(options.in_channels);
  if (options.embedded_columns > 0) {
    cost.parameters += static_cast<double>(options.embedded_columns) * in;
    cost.activations += 2 * rows.nodes.back() * in;
  }
  if (!options.edge.categories.empty()) {
    cost.parameters += Encoder::Parameters(options.edge, hidden);
    cost.activations += 2 * rows.edges * hidden;
  }
  double backward = 0;
  for (size_t l = 0; l < layers; ++l) {
    const double targets = rows.nodes[layers - l - 1];
    const ConvCost of_layer =
        kind.cost(ShapeOf(options, static_cast<int64_t>(l)),
                  {.sources = rows.nodes[layers - l], .targets = targets, .edges = rows.edges, .first = l == 0});
    cost.parameters += of_layer.parameters;
    cost.activations += of_layer.saved;
    backward = std::max(backward, of_layer.backward);
    if (IsOutput(model, static_cast<int64_t>(l))) continue;
    cost.parameters += RowNorm::Parameters(model.norm, hidden);
    // Batch norm keeps four values for each output value; among them are its input, its centred rows and its output.
    // Layer norm keeps its output, before and after ReLU. A residual keeps its sum, too.
    const double of_norm = model.norm == spec::Norm::kBatch ? 4 : model.norm == spec::Norm::kLayer ? 2 : 0;
    const double kept = of_norm + (model.dropout > 0 ? 1 : 0) + (model.residual && l > 0 ? 1 : 0);
    cost.activations += kept * targets * hidden;
    if (of_norm > 0) backward = std::max(backward, of_layer.backward + (of_norm - 1) * targets * hidden);
  }
  if (IsJoined(model)) {
    const auto joined = static_cast<double>(JoinedWidth(model));
    cost.parameters += joined * outputs + outputs;
    cost.activations += (layers > 1 ? 2 : 1) * rows.nodes.front() * joined;
  }
  if (model.input_dropout > 0 || model.normalize_features) {
    cost.activations += 3 * rows.nodes.back() * static_cast<double>(options.in_channels);
  }
  cost.activations += backward + 6 * rows.edges + 4 * rows.nodes.back() + 4 * rows.nodes.front() * outputs;
  return cost;
}

LayerWiseModel::InputRows LayeredModel::Embedded(InputRows rows) const {
  if (!embedding_.defined()) return rows;
  return {.dense = SegmentSum(embedding_, rows.feature_offsets, rows.feature_columns, {}),
          .feature_offsets = {},
          .feature_columns = {},
          .feature_values = {}};
}

LayerWiseModel::InputRows LayeredModel::Input(const NodeBlock& block, Mode mode) const {
  InputRows rows{block.features, block.feature_offsets, block.feature_columns, block.feature_values};
  if (options_.model.normalize_features) rows = Normalised(std::move(rows));
  rows = Embedded(std::move(rows));
  const double p = mode == Mode::kTrain ? options_.model.input_dropout : 0;
  if (p == 0) return rows;
  const DropoutKey key{.seed = seed_, .layer = kInputMasks};
  if (rows.dense.defined()) {
    rows.dense = Dropout(rows.dense, block.step, key, p, block.row_keys);
    return rows;
  }
  // Dropout keys entries by their own position, since padding rows have no entries.
  const Tensor values = rows.feature_values.defined() ? rows.feature_values
                                                      : at::ones({rows.feature_columns.size(0)},
                                                                 rows.feature_columns.options().dtype(at::kFloat));
  rows.feature_values = Dropout(values.unsqueeze(1), block.step, key, p).squeeze(1);
  return rows;
}

EncodedEdges LayeredModel::Encoded(const Tensor& edge_features) const {
  if (!edge_features.defined()) return {};
  if (!edge_encoder_) return {.rows = edge_features.to(type()), .code = {}};
  GineEdges edges;
  edge_encoder_->Encode(edge_features, edge_features.size(0), edges);
  return {.rows = edges.rows, .code = edges.code};
}

Tensor LayeredModel::Forward(const NodeBlock& block, Mode mode) {
  const spec::ModelOptions& model = options_.model;
  const int64_t layers = model.num_layers, depths = std::ssize(block.row_ends);
  const bool sums_made = depths == layers, training = mode == Mode::kTrain;
  TORCH_CHECK(layers > 0 && (depths == layers + 1 || sums_made), "NodeModel: row_ends has ", depths,
              " entries, the model ", layers, " layers");
  const EncodedEdges encoded = Encoded(block.edge_features);
  const MessageNorm norm = kind_.norm(block.offsets, block.sources, block.edge_weights, block.row_ends.back(), type(),
                                      encoded.rows.defined());
  const CsrTranspose transpose = block.transpose.offsets.defined() || !at::GradMode::is_enabled()
                                     ? block.transpose
                                     : TransposeCsr(block.offsets, block.sources, block.row_ends.back());
  const bool has_norm = model.norm != spec::Norm::kNone;
  InputRows rows = Input(block, mode);
  std::vector<Tensor> outputs;
  for (int64_t l = 0; l < layers; ++l) {
    const int64_t targets = block.row_ends[static_cast<size_t>(layers - l - 1)];
    const auto first = [targets](const Tensor& of_rows) {
      return of_rows.defined() ? of_rows.narrow(0, 0, targets) : of_rows;
    };
    const bool last = IsOutput(model, l);
    const ConvActivation activation{.relu = !last,
                                    .step = block.step,
                                    .key = {.seed = seed_, .layer = l},
                                    .p = !last && training ? model.dropout : 0,
                                    .row_keys = first(block.row_keys)};
    ConvCall call{.edges = {},
                  .edge_rows = encoded.rows,
                  .edge_code = encoded.code,
                  .activation = activation,
                  .attention_p = training ? model.dropout : 0};
    if (l > 0 || !sums_made) {
      call.edges = {.offsets = block.offsets.narrow(0, 0, targets + 1),
                    .sources = block.sources,
                    .transpose = transpose,
                    .weights = norm.weights,
                    .self = first(norm.self),
                    .scale = first(norm.scale)};
    }
    const bool norms = !last && has_norm;
    if (norms) {
      call.activation.relu = false;
      call.activation.p = 0;
    }
    const auto& convolution = *convolutions_[static_cast<size_t>(l)];
    Tensor h = convolution.Apply(rows, call);
    if (norms)
      h = norms_[static_cast<size_t>(l)].Activate(h, {.count = {}, .keys = activation.row_keys}, training, activation);
    if (model.residual && !last && l > 0) h = h + rows.dense.narrow(0, 0, targets);
    if (joining_) outputs.push_back(h.narrow(0, 0, block.row_ends.front()));
    rows = {.dense = h, .feature_offsets = {}, .feature_columns = {}, .feature_values = {}};
  }
  return joining_ ? (*joining_)(Join(outputs, model.jumping_knowledge)) : rows.dense;
}

Tensor LayeredModel::Project(int64_t layer, const InputRows& rows) {
  const auto& convolution = *convolutions_[static_cast<size_t>(layer)];
  if (layer > 0) return convolution.Project(rows);
  return convolution.Project(Embedded(options_.model.normalize_features ? Normalised(rows) : rows));
}

int64_t LayeredModel::projected_width(int64_t layer) const {
  return convolutions_[static_cast<size_t>(layer)]->projected_width();
}

Tensor LayeredModel::InverseSqrtDegrees(const Chunk& chunk) const {
  return kind_.inverse_sqrt_degrees == nullptr ? Tensor() : kind_.inverse_sqrt_degrees(chunk, type());
}

Tensor LayeredModel::Combine(int64_t layer, const Tensor& projected, const Chunk& chunk, const Tensor& input) {
  Chunk own = chunk;
  const EncodedEdges encoded = Encoded(chunk.edge_features);
  own.edge_features = encoded.rows;
  own.edge_code = encoded.code;
  Tensor out = convolutions_[static_cast<size_t>(layer)]->Combine(projected, own);
  if (IsOutput(options_.model, layer)) return out;
  out = norms_[static_cast<size_t>(layer)].Activate(out, {}, /*training=*/false,
                                                    {.relu = true, .step = {}, .key = {}, .row_keys = {}});
  return options_.model.residual && layer > 0 ? out + input : out;
}

// Multiplies the layers' outputs by the joining weight one layer at a time, so that they need not all be in memory.
Tensor LayeredModel::JoinOutput(int64_t layer, const Tensor& before, const Tensor& output) const {
  const spec::ModelOptions& model = options_.model;
  const bool last = layer + 1 == model.num_layers;
  if (model.jumping_knowledge == spec::JumpingKnowledge::kMax) {
    const Tensor largest = layer == 0 ? output : Join({before, output}, spec::JumpingKnowledge::kMax);
    return last ? (*joining_)(largest) : largest;
  }
  const int64_t hidden = model.hidden_channels;
  const Tensor part = LinearRows(output, joining_->weight.narrow(1, layer * hidden, hidden));
  const Tensor sum = layer == 0 ? part : before + part;
  return last ? sum + joining_->bias : sum;
}

std::string LayeredModel::Describe() const {
  const spec::ModelOptions& model = options_.model;
  nlohmann::json description{{"architecture", spec::kArchitectureNames.Name(model.architecture)},
                             {"level", spec::kModelLevelNames.Name(spec::ModelLevel::kNode)},
                             {"in_channels", options_.in_channels},
                             {"hidden_channels", model.hidden_channels},
                             {"num_layers", model.num_layers},
                             {"out_channels", options_.num_outputs},
                             {"dropout", model.dropout},
                             {"input_dropout", model.input_dropout},
                             {"heads", model.heads},
                             {"aggregation", spec::kAggregationNames.Name(model.aggregation)},
                             {"norm", spec::kNormNames.Name(model.norm)},
                             {"residual", model.residual},
                             {"jumping_knowledge", spec::kJumpingKnowledgeNames.Name(model.jumping_knowledge)},
                             {"normalize_features", model.normalize_features},
                             {"embedded_nodes", options_.embedded_columns}};
  if (options_.edge.has_features()) {
    description["edge"] = {{"categories", options_.edge.categories},
                           {"float_columns", options_.edge.float_columns},
                           {"weights", model.edge_inputs == spec::EdgeInputs::kWeights}};
  }
  // These inputs are made from the edges, so whoever loads the exported model must make them too.
  if (model.node_inputs == spec::NodeInputs::kDegree || model.node_inputs == spec::NodeInputs::kConstant) {
    description["node_inputs"] = spec::kNodeInputsNames.Name(model.node_inputs);
  }
  return description.dump();
}

}  // namespace

std::unique_ptr<LayerWiseModel> MakeNodeModel(const NodeModelOptions& options, uint64_t seed, at::Device device) {
  const spec::Architecture architecture = options.model.architecture;
  CheckLevel(architecture, spec::ModelLevel::kNode);
  TORCH_CHECK(TraitsOf(architecture).edges != spec::EdgeUse::kNeeded || options.edge.has_features(),
              spec::kArchitectureNames.Name(architecture), " needs features of edges");
  return std::make_unique<LayeredModel>(options, seed, device);
}

ModelCost CostOf(const NodeModelOptions& options, const StepRows& rows) { return LayeredModel::Cost(options, rows); }

}  // namespace permafrost::nn
