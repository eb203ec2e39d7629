#include "nn/models/gine.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "nn/ops/dropout.h"
#include "nn/ops/masked_batch_norm.h"

namespace permafrost::nn {

using at::Tensor;

Gine::Gine(const GraphModelOptions& options, uint64_t seed, at::Device device)
    : options_(options), seed_(seed), device_(device), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
  const int64_t hidden = options.model.hidden_channels;
  node_encoder_ = AddEncoder("node_encoder", options.node);
  edge_encoder_ = AddEncoder("edge_encoder", options.edge);
  const auto floats = at::TensorOptions().device(device_).dtype(at::kFloat);
  for (int64_t l = 0; l < options.model.num_layers; ++l) {
    const std::string conv = absl::StrCat("convs.", l), norm = absl::StrCat("norms.", l, ".module");
    Layer layer;
    // GINEConv keeps eps as a buffer when it is not trained; it is 0 and takes no part in the sum.
    tensors_.AddBuffer(conv + ".eps", at::zeros({1}, floats));
    layer.first = AddLinear(conv + ".nn.0", hidden, hidden);
    layer.second = AddLinear(conv + ".nn.2", hidden, hidden);
    layer.norm_weight = tensors_.AddParameter(norm + ".weight", at::ones({hidden}, floats));
    layer.norm_bias = tensors_.AddParameter(norm + ".bias", at::zeros({hidden}, floats));
    layer.running_mean = tensors_.AddBuffer(norm + ".running_mean", at::zeros({hidden}, floats));
    layer.running_var = tensors_.AddBuffer(norm + ".running_var", at::ones({hidden}, floats));
    layer.batches_tracked = tensors_.AddBuffer(norm + ".num_batches_tracked", at::zeros({}, floats.dtype(at::kLong)));
    layers_.push_back(std::move(layer));
  }
  const int64_t half = std::max<int64_t>(1, hidden / 2);
  head_first_ = AddLinear("head.0", hidden, half);
  head_second_ = AddLinear("head.2", half, options.num_targets);
}

// Counted from Forward: what autograd saves of each layer (the messages; the sum, both hidden products, the norm's
// output, the dropout's), the encoders' outputs, and at the end the gradients of one layer's rows and messages.
ModelCost Gine::Cost(const GraphModelOptions& options, const StepRows& rows) {
  const auto hidden = static_cast<double>(options.model.hidden_channels),
             layers = static_cast<double>(options.model.num_layers), targets = static_cast<double>(options.num_targets);
  ModelCost cost;
  cost.parameters = layers * (2 * hidden * hidden + 4 * hidden) + hidden / 2 * (hidden + 1 + targets) + targets;
  for (const EncoderInput* input : {&options.node, &options.edge}) {
    if (input->categories.empty()) cost.parameters += static_cast<double>(input->float_columns + 1) * hidden;
    for (const int64_t n : input->categories) cost.parameters += static_cast<double>(n) * hidden;
  }
  const double nodes = rows.nodes.front(), of_layer = (options.model.dropout > 0 ? 5 : 4) * nodes + rows.edges;
  cost.activations = hidden * (layers * of_layer + nodes + rows.edges) + hidden * (4 * nodes + 3 * rows.edges) +
                     rows.graphs * (3 * hidden + 4 * targets);
  return cost;
}

Tensor Gine::Uniform(at::IntArrayRef sizes, double bound) {
  return at::empty(sizes, at::kFloat).uniform_(-bound, bound, generator_).to(device_);
}

Gine::Linear Gine::AddLinear(const std::string& name, int64_t in, int64_t out) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return {tensors_.AddParameter(name + ".weight", Uniform({out, in}, bound)),
          tensors_.AddParameter(name + ".bias", Uniform({out}, bound))};
}

Gine::Encoder Gine::AddEncoder(const std::string& name, const EncoderInput& input) {
  const int64_t hidden = options_.model.hidden_channels;
  Encoder encoder;
  if (input.float_columns > 0) {
    encoder.linear = AddLinear(name + ".linear", input.float_columns, hidden);
    return encoder;
  }
  encoder.learned_vector = input.categories.empty();
  const std::vector<int64_t> categories = encoder.learned_vector ? std::vector<int64_t>{1} : input.categories;
  for (size_t c = 0; c < categories.size(); ++c) {
    const double bound = std::sqrt(6.0 / static_cast<double>(categories[c] + hidden));
    encoder.embeddings.push_back(tensors_.AddParameter(absl::StrCat(name, ".embeddings.", c, ".weight"),
                                                       Uniform({categories[c], hidden}, bound)));
  }
  return encoder;
}

Tensor Gine::Linear::operator()(const Tensor& x) const { return at::addmm(bias, x, weight.t()); }

Tensor Gine::Encoder::operator()(const Tensor& features, int64_t rows) const {
  if (linear) return (*linear)(features);
  if (learned_vector) return embeddings[0].expand({rows, embeddings[0].size(1)});
  // index_select rather than embedding: its backward is an index_add, four times as fast on CPU for small tables.
  Tensor sum = embeddings[0].index_select(0, features.select(1, 0));
  for (size_t c = 1; c < embeddings.size(); ++c) {
    sum = sum + embeddings[c].index_select(0, features.select(1, static_cast<int64_t>(c)));
  }
  return sum;
}

Tensor Gine::Forward(const GraphSetBatch& batch, Mode mode) {
  const int64_t rows = batch.graph_of_node.size(0);
  Tensor h = node_encoder_(batch.node_features, rows);
  const Tensor e = edge_encoder_(batch.edge_features, batch.edge_source.size(0));
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    const Tensor messages = (h.index_select(0, batch.edge_source) + e).relu_();
    const Tensor update = h.index_add(0, batch.edge_target, messages);
    const Tensor out = layer.second(layer.first(update).relu_());
    if (mode == Mode::kTrain) {
      h = MaskedBatchNormRelu(out, batch.real_nodes, layer.norm_weight, layer.norm_bias, layer.running_mean,
                              layer.running_var);
      layer.batches_tracked.add_(1);
      h = Dropout(h, batch.step, {.seed = seed_, .layer = static_cast<int64_t>(l)}, options_.model.dropout);
    } else {
      h = BatchNormReluEval(out, layer.norm_weight, layer.norm_bias, layer.running_mean, layer.running_var);
    }
  }
  Tensor pooled = at::zeros({batch.padded_graphs, h.size(1)}, h.options()).index_add(0, batch.graph_of_node, h);
  if (options_.model.pooling == Pooling::kMean) {
    const Tensor ones = at::ones({rows}, h.options());
    const Tensor sizes = at::zeros({batch.padded_graphs}, h.options()).index_add(0, batch.graph_of_node, ones);
    pooled = pooled / sizes.clamp_min(1).unsqueeze(1);
  }
  return head_second_(head_first_(pooled).relu_());
}

std::string Gine::Describe() const {
  const auto encoder = [](const EncoderInput& in) {
    return nlohmann::json{{"categories", in.categories}, {"float_columns", in.float_columns}};
  };
  return nlohmann::json{{"architecture", kArchitectureNames.Name(options_.model.architecture)},
                        {"hidden_channels", options_.model.hidden_channels},
                        {"num_layers", options_.model.num_layers},
                        {"pooling", kPoolingNames.Name(options_.model.pooling)},
                        {"dropout", options_.model.dropout},
                        {"num_targets", options_.num_targets},
                        {"node", encoder(options_.node)},
                        {"edge", encoder(options_.edge)}}
      .dump();
}

}  // namespace permafrost::nn
