#include "nn/models/convolution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {

using at::Tensor;
using InputRows = LayerWiseModel::InputRows;

namespace {

constexpr std::array kKinds{&kSageConvolution, &kGcnConvolution, &kGinConvolution, &kGineConvolution,
                            &kGatv2Convolution};

}  // namespace

const ConvolutionKind& ConvolutionOf(spec::Architecture architecture) {
  const auto* const kind = std::ranges::find(kKinds, architecture, &ConvolutionKind::architecture);
  TORCH_CHECK(kind != kKinds.end(), spec::kArchitectureNames.Name(architecture), " has no convolution of its own");
  return **kind;
}

void CheckLevel(spec::Architecture architecture, spec::ModelLevel level) {
  TORCH_CHECK(TraitsOf(architecture).Serves(level), spec::kArchitectureNames.Name(architecture),
              " is not a model of this level");
}

Tensor MultiplyRows(const InputRows& rows, const Tensor& weight) {
  if (rows.dense.defined()) return LinearRows(rows.dense, weight);
  const Tensor& values = rows.feature_values;
  return SparseLinear(weight, rows.feature_offsets, rows.feature_columns,
                      values.defined() ? values.to(weight.scalar_type()) : values);
}

Tensor DenseRows(const InputRows& rows, const Tensor& weight) {
  if (rows.dense.defined()) return rows.dense;
  return DenseOfSparse(rows.feature_offsets, rows.feature_columns, rows.feature_values, weight.size(1),
                       weight.scalar_type());
}

InputRows FirstRows(const InputRows& rows, int64_t count) {
  InputRows first = rows;
  if (rows.dense.defined()) {
    // A part of all rows would cost their gradient a copy.
    if (count < rows.dense.size(0)) first.dense = rows.dense.narrow(0, 0, count);
  } else {
    first.feature_offsets = rows.feature_offsets.narrow(0, 0, count + 1);
  }
  return first;
}

bool AggregatesFirst(const InputRows& in, const ConvEdges& edges, const Tensor& weight) {
  if (!in.dense.defined()) return false;
  return !edges.offsets.defined() || edges.offsets.size(0) - 1 < in.dense.size(0) || weight.size(1) <= weight.size(0);
}

Tensor Activate(const Tensor& x, const ConvActivation& activation) {
  if (!activation.relu) return x;
  const Tensor& keys = activation.row_keys;
  return Dropout(ReluRows(x), activation.step, activation.key, activation.p,
                 keys.defined() ? keys.narrow(0, 0, x.size(0)) : keys);
}

// Counted from GraphConv. Autograd saves what the layer multiplies, and its output. The backward holds three gradients:
// that of the output, of what was multiplied (with its packed copy), and, twice, of the input. It also holds the
// weights' gradients by chunk.
ConvCost GraphConvCost(const ConvShape& shape, const ConvRows& rows, int weights) {
  const auto in = static_cast<double>(shape.in), out = static_cast<double>(shape.out);
  // The columns that weights multiply: those of the sums, and with a second weight the rows' own too.
  const bool aggregates_first = in <= out || rows.targets < rows.sources;
  const double multiplied = aggregates_first ? weights * in : 0;
  const double of_input = rows.first ? rows.sources * std::min(in, out) : 3 * rows.sources * in;
  const double partial = multiplied * out + out;
  const auto chunks =
      static_cast<double>(RowChunks::CountOf(static_cast<int64_t>(rows.targets), static_cast<int64_t>(partial)));
  return {.parameters = weights * in * out + out,
          .saved = rows.targets * (multiplied + out),
          .backward = rows.targets * (2 * out + std::max(2 * multiplied, out)) + chunks * partial + of_input};
}

}  // namespace permafrost::nn
