#include "nn/models/set_layer.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nn/models/gin.h"
#include "nn/models/row_norm.h"
#include "nn/ops/lowering.h"
#include "nn/ops/mlp.h"
#include "nn/ops/row_chunks.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

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

// x, its padding rows 0. Without a norm they would grow from layer to layer, as each has all padding edges to itself,
// until they are infinite; such a row makes NaN of the weights' gradients, though its own gradient is 0.
Tensor WithoutPadding(const Tensor& x, const Tensor& real_nodes) {
  const Tensor is_real = at::arange(x.size(0), real_nodes.options()).lt(real_nodes).unsqueeze(1);
  return at::where(is_real, x, at::zeros({}, x.options()));
}

// GIN and GINE with batch norm: one operator.
class FusedGinLayer final : public SetLayer {
 public:
  FusedGinLayer(WeightMaker& weights, int64_t layer, const GraphModelOptions& options, uint64_t seed)
      : key_{.seed = seed, .layer = layer}, p_(options.model.dropout) {
    const int64_t hidden = options.model.hidden_channels;
    const std::string conv = absl::StrCat("convs.", layer), norm = absl::StrCat("norms.", layer, ".module");
    const GinNames names = GinNamesOf(ShapeOf(options));
    // GINEConv keeps eps as a buffer when it is not trained; it is 0 and takes no part in the sum.
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
    return GineLayer(x, graph.edges, graph.real_nodes, weights_, {.step = graph.step, .key = key_, .p = p_});
  }

 private:
  // In training, with a norm that is not trained: it normalizes by its running statistics, which stay.
  Tensor ForwardFixed(const Tensor& x, const SetGraph& graph) const {
    const GineWeights& w = weights_;
    const Tensor product = Mlp(SumGineMessages(x, graph.edges), w.w1, w.b1, w.w2, w.b2);
    const Tensor y = FixedBatchNormRelu(product, w.norm_weight, w.norm_bias, w.running_mean, w.running_var);
    return WithoutPadding(Dropout(y, graph.step, key_, p_), graph.real_nodes);
  }

  DropoutKey key_;
  double p_;
  GineWeights weights_;
};

// GIN and GINE with another norm.
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
    const Tensor y =
        norm_->Activate(product, {.count = graph.real_nodes, .keys = {}}, training,
                        {.relu = true, .step = graph.step, .key = key_, .p = training ? p_ : 0, .row_keys = {}});
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
    const ConvActivation activation{.relu = true, .step = graph.step, .key = key_, .p = p, .row_keys = {}};
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

}  // namespace

bool ReadsEdges(const GraphModelOptions& options) {
  if (options.model.architecture == spec::Architecture::kGine) return true;
  return options.model.architecture == spec::Architecture::kGatv2 && options.edge.has_features();
}

std::unique_ptr<SetLayer> MakeSetLayer(WeightMaker& weights, int64_t layer, const GraphModelOptions& options,
                                       uint64_t seed) {
  if (!IsGin(options.model.architecture)) return std::make_unique<ConvLayer>(weights, layer, options, seed);
  if (options.model.norm == spec::Norm::kBatch) return std::make_unique<FusedGinLayer>(weights, layer, options, seed);
  return std::make_unique<GinLayer>(weights, layer, options, seed);
}

// GIN and GINE: each layer keeps its sum, hidden product, product and output. While one layer runs back there are also
// the gradients of its output, of its input and of all three within, the packed rows, and every chunk's share of the
// weights' gradients.
ConvCost SetLayerCost(const GraphModelOptions& options, double nodes, double edges) {
  const auto hidden = static_cast<double>(options.model.hidden_channels);
  const spec::Norm norm = options.model.norm;
  ConvCost cost;
  if (IsGin(options.model.architecture)) {
    const double of_layer = 2 * hidden * hidden + 2 * hidden;
    const auto chunks =
        static_cast<double>(RowChunks::CountOf(static_cast<int64_t>(nodes), static_cast<int64_t>(of_layer)));
    cost = {.parameters = of_layer, .saved = 4 * nodes * hidden, .backward = 6 * nodes * hidden + chunks * of_layer};
    // Without the one operator messages are rows of their own.
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

}  // namespace permafrost::nn
