#include "nn/models/layered_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "nn/ops/lowering.h"
#include "nn/ops/row_chunks.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

using at::Tensor;

LayeredModel::LayeredModel(const NodeModelOptions& options, uint64_t seed, at::Device device)
    : options_(options), seed_(seed), device_(device), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

// Counted from Forward and GraphConv: autograd saves what each layer multiplies and its output; while a layer runs
// back, gradients of its output, of what was multiplied (with its packed copy) and, twice, of its input are there, with
// the weights' gradients by chunk and the transposed edges.
ModelCost LayeredModel::Cost(const NodeModelOptions& options, const StepRows& rows, int weights) {
  const auto layers = static_cast<size_t>(options.model.num_layers);
  const auto hidden = static_cast<double>(options.model.hidden_channels);
  ModelCost cost;
  double backward = 0;
  for (size_t l = 0; l < layers; ++l) {
    const double in = l == 0 ? static_cast<double>(options.in_channels) : hidden;
    const double out = l + 1 == layers ? static_cast<double>(options.num_outputs) : hidden;
    const double sources = rows.nodes[layers - l], targets = rows.nodes[layers - l - 1];
    cost.parameters += weights * in * out + out;
    // Rows that a weight follows: sums, and of two weights the rows themselves beside them.
    const bool aggregates_first = in <= out || targets < sources;
    const double multiplied = aggregates_first ? weights * in : 0;
    cost.activations += targets * (multiplied + out);
    const double of_input = l == 0 ? sources * std::min(in, out) : 3 * sources * in;
    const double partial = multiplied * out + out;
    const auto chunks =
        static_cast<double>(RowChunks::CountOf(static_cast<int64_t>(targets), static_cast<int64_t>(partial)));
    backward = std::max(backward, targets * (2 * out + std::max(2 * multiplied, out)) + chunks * partial + of_input);
  }
  // Edges: GCN's norm before the first layer takes three values of 8 bytes of each; the transpose takes less.
  cost.activations += backward + 6 * rows.edges + 4 * rows.nodes.back() +
                      4 * rows.nodes.front() * static_cast<double>(options.num_outputs);
  return cost;
}

int64_t LayeredModel::input_width(int64_t layer) const {
  return layer == 0 ? options_.in_channels : options_.model.hidden_channels;
}

int64_t LayeredModel::output_width(int64_t layer) const {
  return layer == num_layers() - 1 ? options_.num_outputs : options_.model.hidden_channels;
}

Tensor LayeredModel::AddUniform(std::string name, at::IntArrayRef sizes, double bound) {
  return tensors_.AddParameter(std::move(name),
                               at::empty(sizes, at::kFloat).uniform_(-bound, bound, generator_).to(device_));
}

Tensor LayeredModel::AddZeros(std::string name, at::IntArrayRef sizes) {
  return tensors_.AddParameter(std::move(name), at::zeros(sizes, at::TensorOptions().device(device_)));
}

LayeredModel::InputRows LayeredModel::FirstRows(const InputRows& rows, int64_t count) {
  InputRows first = rows;
  if (rows.dense.defined()) {
    first.dense = rows.dense.narrow(0, 0, count);
  } else {
    first.feature_offsets = rows.feature_offsets.narrow(0, 0, count + 1);
  }
  return first;
}

Tensor LayeredModel::Linear(const InputRows& rows, const Tensor& weight) {
  if (rows.dense.defined()) return LinearRows(rows.dense, weight);
  const Tensor& values = rows.feature_values;
  return SparseLinear(weight, rows.feature_offsets, rows.feature_columns,
                      values.defined() ? values.to(weight.scalar_type()) : values);
}

Tensor LayeredModel::Dense(const InputRows& rows, const Tensor& weight) {
  return rows.dense.defined() ? rows.dense : Linear(rows, at::eye(weight.size(1), weight.options()));
}

bool LayeredModel::AggregatesFirst(const InputRows& in, const ConvEdges& edges, const Tensor& weight) {
  if (!in.dense.defined()) return false;
  return !edges.offsets.defined() || edges.offsets.size(0) - 1 < in.dense.size(0) || weight.size(1) <= weight.size(0);
}

Tensor LayeredModel::Forward(const NodeBlock& block, Mode mode) {
  const int64_t layers = num_layers(), depths = std::ssize(block.row_ends);
  const bool sums_made = depths == layers;
  TORCH_CHECK(layers > 0 && (depths == layers + 1 || sums_made), "NodeModel: row_ends has ", depths,
              " entries, the model ", layers, " layers");
  const MessageNorm norm = NormOf(block);
  const CsrTranspose transpose = block.transpose.offsets.defined() || !at::GradMode::is_enabled()
                                     ? block.transpose
                                     : TransposeCsr(block.offsets, block.sources, block.row_ends.back());
  InputRows rows{block.features, block.feature_offsets, block.feature_columns, block.feature_values};
  for (int64_t l = 0; l < layers; ++l) {
    const int64_t targets = block.row_ends[static_cast<size_t>(layers - l - 1)];
    const auto first = [targets](const Tensor& of_rows) {
      return of_rows.defined() ? of_rows.narrow(0, 0, targets) : of_rows;
    };
    ConvEdges edges;
    if (l > 0 || !sums_made) {
      edges = {.offsets = block.offsets.narrow(0, 0, targets + 1),
               .sources = block.sources,
               .transpose = transpose,
               .weights = norm.weights,
               .self = first(norm.self),
               .scale = first(norm.scale)};
    }
    const bool last = l == layers - 1;
    const Tensor h = Convolve(l, rows, edges,
                              {.relu = !last,
                               .step = block.step,
                               .key = {.seed = seed_, .layer = l},
                               .p = !last && mode == Mode::kTrain ? options_.model.dropout : 0,
                               .row_keys = first(block.row_keys)});
    rows = {.dense = h, .feature_offsets = {}, .feature_columns = {}, .feature_values = {}};
  }
  return rows.dense;
}

Tensor LayeredModel::Combine(int64_t layer, const Tensor& projected, const Chunk& chunk) {
  const Tensor out = ConvolveProjected(layer, projected, chunk);
  return layer == num_layers() - 1 ? out : out.relu();
}

std::string LayeredModel::Describe() const {
  return nlohmann::json{{"architecture", kArchitectureNames.Name(options_.model.architecture)},
                        {"in_channels", options_.in_channels},
                        {"hidden_channels", options_.model.hidden_channels},
                        {"num_layers", options_.model.num_layers},
                        {"out_channels", options_.num_outputs},
                        {"dropout", options_.model.dropout}}
      .dump();
}

}  // namespace permafrost::nn
