#include "nn/ops/edge_sum.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "nn/kernels/gine.h"
#include "nn/ops/lowering.h"
#include "nn/ops/mlp_chunks.h"
#include "nn/ops/operator.h"
#include "nn/ops/row_chunks.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

void CheckEdgeSum(const Tensor& x, const Tensor& rows, const OptionalTensor& code, const Tensor& offsets,
                  const Tensor& sources, int64_t first_row) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "edge_sum: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  TORCH_CHECK(offsets.dim() == 1 && offsets.numel() >= 1 && offsets.scalar_type() == at::kLong && sources.dim() == 1 &&
                  sources.scalar_type() == at::kLong,
              "edge_sum: offsets and sources must be [T + 1] and [E] int64, not ", offsets.toString(), offsets.sizes(),
              " and ", sources.toString(), sources.sizes());
  TORCH_CHECK(first_row >= 0 && first_row + offsets.numel() - 1 <= x.size(0), "edge_sum: ", offsets.numel() - 1,
              " rows from ", first_row, " on of ", x.size(0));
  TORCH_CHECK(rows.dim() == 2 && rows.size(1) == x.size(1) && rows.scalar_type() == x.scalar_type(),
              "edge_sum: rows must be [codes or E, ", x.size(1), "] of x's type, not ", rows.toString(), rows.sizes());
  TORCH_CHECK(
      code ? code->scalar_type() == at::kInt && code->numel() == sources.numel() : rows.size(0) == sources.numel(),
      "edge_sum: ", code ? code->numel() : rows.size(0), " rows or codes for ", sources.numel(), " edges");
}

// Small parallel regions collapse when cores are shared.
int64_t GatherGrain(const RowChunks& chunks, int64_t values) { return values < kParallelGathers ? chunks.count() : 1; }

Tensor EdgeSumCpu(const Tensor& x_in, const Tensor& rows_in, const OptionalTensor& code_in, const Tensor& offsets_in,
                  const Tensor& sources_in, int64_t first_row) {
  CheckEdgeSum(x_in, rows_in, code_in, offsets_in, sources_in, first_row);
  const Tensor x = x_in.contiguous(), rows = rows_in.contiguous(), offsets = offsets_in.to(at::kInt).contiguous();
  const OptionalTensor code = code_in ? OptionalTensor(code_in->contiguous()) : std::nullopt;
  // The kernel's row i begins with its own row i: x from `first_row` on, which the sources are counted from too.
  const Tensor sources = first_row == 0 ? sources_in.contiguous() : sources_in - first_row;
  const int64_t targets = offsets.numel() - 1, width = x.size(1);
  Tensor sum = at::empty({targets, width}, x.options());
  const RowChunks chunks(targets, 1);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "edge_sum", [&] {
    const GineMessages<scalar_t> messages{.x = Read<scalar_t>(x) + first_row * width,
                                          .edges = Read<scalar_t>(rows),
                                          .code = DataOrNull<int32_t>(code),
                                          .width = width};
    scalar_t* const to = Write<scalar_t>(sum);
    ForChunks(chunks, GatherGrain(chunks, (sources.numel() + targets) * width), [&](int64_t, int64_t begin, int64_t n) {
      GineSum<scalar_t>(messages, Read<int32_t>(offsets), Read<int64_t>(sources), begin, begin + n, to);
    });
  });
  return sum;
}

// Gradients of x and of the rows.
std::tuple<Tensor, Tensor> EdgeSumBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const Tensor& rows_in,
                                              const OptionalTensor& code_in, const Tensor& out_offsets,
                                              const Tensor& out_rows, const Tensor& out_edges) {
  const Tensor x = x_in.contiguous(), rows = rows_in.contiguous();
  const OptionalTensor code = code_in ? OptionalTensor(code_in->contiguous()) : std::nullopt;
  const int64_t nodes = x.size(0), width = x.size(1);
  TORCH_CHECK(out_offsets.numel() > nodes && out_offsets.scalar_type() == at::kInt,
              "edge_sum_backward: the transpose must be of the rows of x or more, ", nodes);
  // Rows that no sum was asked for have the gradient 0, and the transpose may name them: as many as it has rows.
  const int64_t named = std::max(nodes, out_offsets.numel() - 1);
  Tensor grad = at::zeros({named, width}, x.options());
  grad.narrow(0, 0, grad_in.size(0)).copy_(grad_in);
  const int64_t partial = code ? rows.numel() : 0;
  const RowChunks chunks(nodes, std::max<int64_t>(1, partial));
  Tensor gx = at::empty({nodes, width}, x.options());
  // Padding edges are nobody's.
  const Tensor ge = code ? at::zeros({chunks.count(), partial}, x.options()) : at::zeros_like(rows);
  Tensor ge_sum = ge;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "edge_sum_backward", [&] {
    const GineMessages<scalar_t> messages{
        .x = Read<scalar_t>(x), .edges = Read<scalar_t>(rows), .code = DataOrNull<int32_t>(code), .width = width};
    const scalar_t* const g = Read<scalar_t>(grad);
    scalar_t *const to = Write<scalar_t>(gx), *const to_edges = Write<scalar_t>(ge);
    ForChunks(chunks, GatherGrain(chunks, (out_edges.numel() + nodes) * width),
              [&](int64_t c, int64_t begin, int64_t n) {
                GineGradient<scalar_t>(messages, Read<int32_t>(out_offsets), Read<int32_t>(out_rows),
                                       Read<int32_t>(out_edges), g, begin, begin + n, to, to_edges + c * partial);
              });
    if (code) {
      ge_sum = at::empty_like(rows);
      AddParts<scalar_t>(Read<scalar_t>(ge), partial, chunks.count(), partial, Write<scalar_t>(ge_sum));
    }
  });
  return {gx, ge_sum};
}

constexpr Operator<EdgeSumCpu> kEdgeSum{
    "edge_sum(Tensor x, Tensor rows, Tensor? code, Tensor offsets, Tensor sources, int first_row) -> Tensor"};
constexpr Operator<EdgeSumBackwardCpu> kEdgeSumBackward{
    "edge_sum_backward(Tensor grad, Tensor x, Tensor rows, Tensor? code, Tensor out_offsets, Tensor out_rows, "
    "Tensor out_edges) -> (Tensor, Tensor)"};

class EdgeSumFunction : public torch::autograd::Function<EdgeSumFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& rows,
                        const SummedEdges& edges) {
    context->save_for_backward(
        {x, rows, edges.code, edges.transpose.offsets, edges.transpose.rows, edges.transpose.edges});
    return kEdgeSum(x, rows, IfDefined(edges.code), edges.offsets, edges.sources, edges.first_row);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto s = context->get_saved_variables();
    auto [gx, ge] = kEdgeSumBackward(grads[0], s[0], s[1], IfDefined(s[2]), s[3], s[4], s[5]);
    return {gx, ge, Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kEdgeSum.Register(library);
  kEdgeSumBackward.Register(library);
}

Tensor EdgeSumPlain(const Tensor& x, const SummedEdges& edges) {
  const int64_t targets = edges.offsets.size(0) - 1;
  // Entries beyond the last offset may name rows that x does not have; they are summed into one row more.
  const Tensor row = SegmentOfEntry(edges.offsets, edges.sources.size(0));
  const Tensor messages = ReluRows(SelectRows(x, edges.sources.clamp_max(x.size(0) - 1)) +
                                   (edges.code.defined() ? SelectRows(edges.rows, edges.code) : edges.rows));
  const Tensor own = at::cat({x.narrow(0, edges.first_row, targets), at::zeros({1, x.size(1)}, x.options())});
  return AddRows(own, row, messages).narrow(0, 0, targets);
}

Tensor EdgeSum(const Tensor& x, const SummedEdges& edges) {
  return IsFused(x) ? EdgeSumFunction::apply(x, edges.rows, edges) : EdgeSumPlain(x, edges);
}

}  // namespace permafrost::nn
