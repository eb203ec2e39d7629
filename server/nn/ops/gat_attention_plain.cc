#include <ATen/ATen.h>

#include <limits>

#include "nn/ops/gat_attention.h"
#include "nn/ops/lowering.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

constexpr int64_t kSlotStride = 0x9e3779b1;

// [rows, heads] of z [rows, W].
Tensor Scores(const Tensor& z, const Tensor& attention, const GatOptions& o) {
  const int64_t channels = z.size(1) / o.heads;
  return (at::leaky_relu(z, o.slope) * attention).view({z.size(0), o.heads, channels}).sum(-1);
}

// x [rows, W], each head's columns times its value of [rows, heads].
Tensor TimesHeads(const Tensor& x, const Tensor& of_heads) {
  const int64_t rows = x.size(0), heads = of_heads.size(1);
  return (x.view({rows, heads, x.size(1) / heads}) * of_heads.unsqueeze(2)).view(x.sizes());
}

}  // namespace

Tensor GatAttentionPlain(const Tensor& left, const Tensor& right, const Tensor& attention, const GatEdges& edges,
                         const GatOptions& o) {
  const int64_t targets = right.size(0), count = edges.sources.size(0);
  const auto floats = left.options();
  const Tensor row = SegmentOfEntry(edges.offsets, count);  // `targets` in padding
  const Tensor in_row = row.lt(targets), loop = at::bitwise_and(in_row, edges.sources.eq(row + o.first_row));
  const Tensor real = at::bitwise_xor(in_row, loop).unsqueeze(1);
  const Tensor sources = edges.sources.clamp_max(left.size(0) - 1), to = row.clamp_max(targets - 1);
  const Tensor own = left.narrow(0, o.first_row, targets);
  const Tensor from = SelectRows(left, sources);
  Tensor z = from + SelectRows(right, to), self_z = own + right;
  if (edges.rows.defined()) {
    z = z + edges.rows;
    self_z = self_z + edges.self_rows;
  }
  const Tensor zero = at::zeros({}, floats), self_score = Scores(self_z, attention, o);
  const Tensor score =
      at::where(real, Scores(z, attention, o), at::full({}, -std::numeric_limits<double>::infinity(), floats));
  // Shifted by each row's largest score, which changes no quotient and has no gradient.
  const Tensor largest =
      self_score.detach().scatter_reduce(0, to.unsqueeze(1).expand({count, o.heads}), score.detach(), "amax");
  const Tensor self_weight = (self_score - largest).exp();
  const Tensor weight = at::where(real, (score - SelectRows(largest, to)).exp(), zero);
  const Tensor total = AddRows(self_weight, to, weight);
  Tensor self_alpha = self_weight / total, alpha = weight / SelectRows(total, to);
  if (o.p > 0) {
    const Tensor keys = (o.row_keys.defined() ? o.row_keys.narrow(0, 0, targets)
                                              : at::arange(targets, edges.offsets.options()) + o.first_row) *
                        kSlotStride;
    const Tensor slot = at::arange(count, edges.offsets.options()) - SelectRows(edges.offsets, to) + 1;
    self_alpha = Dropout(self_alpha, o.step, o.key, o.p, keys);
    alpha = Dropout(alpha, o.step, o.key, o.p, SelectRows(keys, to) + slot);
  }
  return AddRows(TimesHeads(own, self_alpha), to, TimesHeads(from, alpha));
}

}  // namespace permafrost::nn
