#include "nn/models/gine.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "nn/ops/embedding_sum.h"
#include "nn/ops/lowering.h"
#include "nn/ops/mlp.h"
#include "nn/ops/pool.h"
#include "nn/ops/row_chunks.h"

namespace permafrost::nn {

using at::Tensor;

namespace {
// Combinations of an edge's categories up to which all are in one table, whose rows and gradients stay in L1 cache.
constexpr int64_t kMostCombinations = 64;

// Up to one more than that.
int64_t Combinations(const std::vector<int64_t>& categories) {
  int64_t combinations = 1;
  for (const int64_t n : categories) combinations = std::min(combinations * n, kMostCombinations + 1);
  return combinations;
}

}  // namespace

Gine::Gine(const GraphModelOptions& options, uint64_t seed, at::Device device)
    : options_(options), seed_(seed), device_(device), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
  const int64_t hidden = options.model.hidden_channels;
  node_encoder_ = AddEncoder("node_encoder", options.node);
  edge_encoder_ = AddEncoder("edge_encoder", options.edge);
  const auto floats = at::TensorOptions().device(device_).dtype(at::kFloat);
  for (int64_t l = 0; l < options.model.num_layers; ++l) {
    const std::string conv = absl::StrCat("convs.", l), norm = absl::StrCat("norms.", l, ".module");
    // GINEConv keeps eps as a buffer when it is not trained; it is 0 and takes no part in the sum.
    tensors_.AddBuffer(conv + ".eps", at::zeros({1}, floats));
    const Linear first = AddLinear(conv + ".nn.0", hidden, hidden), second = AddLinear(conv + ".nn.2", hidden, hidden);
    layers_.push_back(
        {.w1 = first.weight,
         .b1 = first.bias,
         .w2 = second.weight,
         .b2 = second.bias,
         .norm_weight = tensors_.AddParameter(norm + ".weight", at::ones({hidden}, floats)),
         .norm_bias = tensors_.AddParameter(norm + ".bias", at::zeros({hidden}, floats)),
         .running_mean = tensors_.AddBuffer(norm + ".running_mean", at::zeros({hidden}, floats)),
         .running_var = tensors_.AddBuffer(norm + ".running_var", at::ones({hidden}, floats)),
         .batches_tracked = tensors_.AddBuffer(norm + ".num_batches_tracked", at::zeros({}, floats.dtype(at::kLong)))});
  }
  const int64_t half = std::max<int64_t>(1, hidden / 2);
  head_first_ = AddLinear("head.0", hidden, half);
  head_second_ = AddLinear("head.2", half, options.num_targets);
}

// Counted from Forward: each layer keeps its sum, hidden product, product and output; beside them stand the encoders'
// outputs and both orders of the edges. While one layer runs back there are also the gradients of its output, of its
// input and of all three within, the packed rows, and every chunk's share of the weights' gradients.
ModelCost Gine::Cost(const GraphModelOptions& options, const StepRows& rows) {
  const auto hidden = static_cast<double>(options.model.hidden_channels),
             layers = static_cast<double>(options.model.num_layers), targets = static_cast<double>(options.num_targets);
  const double of_layer = 2 * hidden * hidden + 2 * hidden, nodes = rows.nodes.front();
  ModelCost cost;
  cost.parameters = layers * (of_layer + 2 * hidden) + hidden / 2 * (hidden + 1 + targets) + targets;
  for (const EncoderInput* input : {&options.node, &options.edge}) {
    if (input->categories.empty()) cost.parameters += static_cast<double>(input->float_columns + 1) * hidden;
    for (const int64_t n : input->categories) cost.parameters += static_cast<double>(n) * hidden;
  }
  const auto chunks =
      static_cast<double>(RowChunks::CountOf(static_cast<int64_t>(nodes), static_cast<int64_t>(of_layer)));
  // An edge's row, and its gradient: the sum so far, a layer's, and the sum with it.
  const double edge_rows =
      options.edge.float_columns > 0 || Combinations(options.edge.categories) > kMostCombinations ? 4 * rows.edges : 0;
  cost.activations = hidden * (nodes * (4 * layers + 1 + 6) + edge_rows) + chunks * of_layer + 3 * rows.edges +
                     2 * nodes + rows.graphs * (3 * hidden + 4 * targets);
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

Tensor Gine::Linear::operator()(const Tensor& x) const { return LinearRows(x, weight, bias); }

Tensor Gine::Encoder::operator()(const Tensor& features, int64_t rows) const {
  if (linear) return (*linear)(features);
  if (learned_vector) return embeddings[0].expand({rows, embeddings[0].size(1)});
  return EmbeddingSum(features, embeddings);
}

GineEdges Gine::EdgesOf(const GraphSetBatch& batch) const {
  GineEdges edges{.source = batch.edge_source, .target = batch.edge_target, .index = {}, .rows = {}, .code = {}};
  if (IsFused(batch.edge_source)) {
    edges.index = IndexEdges(batch.edge_source, batch.edge_target, batch.graph_of_node.size(0));
  }
  const int64_t count = batch.edge_source.size(0);
  if (edge_encoder_.linear || Combinations(options_.edge.categories) > kMostCombinations) {
    edges.rows = edge_encoder_(batch.edge_features, count);
  } else if (edge_encoder_.learned_vector) {
    edges.rows = edge_encoder_.embeddings[0];
    edges.code = at::zeros({count}, batch.edge_source.options().dtype(at::kInt));
  } else {
    edges.rows = CombineTables(edge_encoder_.embeddings);
    edges.code = CombineCategories(batch.edge_features, options_.edge.categories);
  }
  return edges;
}

Tensor Gine::Forward(const GraphSetBatch& batch, Mode mode) {
  Tensor h = node_encoder_(batch.node_features, batch.graph_of_node.size(0));
  const GineEdges edges = EdgesOf(batch);
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (mode == Mode::kTrain) {
      h = GineLayer(
          h, edges, batch.real_nodes, layers_[l],
          {.step = batch.step, .key = {.seed = seed_, .layer = static_cast<int64_t>(l)}, .p = options_.model.dropout});
    } else {
      h = GineLayerEval(h, edges, batch.real_nodes, layers_[l]);
    }
  }
  const Tensor pooled = PoolRows(h, batch.graph_of_node, batch.padded_graphs, options_.model.pooling);
  return Mlp(pooled, head_first_.weight, head_first_.bias, head_second_.weight, head_second_.bias);
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
