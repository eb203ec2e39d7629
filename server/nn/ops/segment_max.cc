#include "nn/ops/segment_max.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "nn/kernels/segment_max.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Values that a thread should have at least.
constexpr int64_t kMaxGrain = 1 << 14;

void CheckSegments(const Tensor& x, const Tensor& offsets, const Tensor& sources) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "segment_max: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  TORCH_CHECK(offsets.dim() == 1 && offsets.numel() >= 1 && offsets.scalar_type() == at::kLong,
              "segment_max: offsets must be [R + 1] int64, not ", offsets.toString(), offsets.sizes());
  TORCH_CHECK(sources.dim() == 1 && sources.scalar_type() == at::kLong, "segment_max: sources must be [E] int64, not ",
              sources.toString(), sources.sizes());
}

// Rows that a thread should have at least, where `entries` are spread over `rows`.
int64_t GrainOf(int64_t rows, int64_t entries, int64_t columns) {
  const int64_t of_row = std::max<int64_t>(1, columns * (1 + entries / std::max<int64_t>(1, rows)));
  return std::max<int64_t>(1, kMaxGrain / of_row);
}

Tensor MaxForwardCpu(const Tensor& x_in, const Tensor& offsets_in, const Tensor& sources_in) {
  CheckSegments(x_in, offsets_in, sources_in);
  const Tensor x = x_in.contiguous(), offsets = offsets_in.contiguous(), sources = sources_in.contiguous();
  const int64_t rows = offsets.numel() - 1, columns = x.size(1);
  Tensor out = at::empty({rows, columns}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "segment_max", [&] {
    const scalar_t* const from = x.const_data_ptr<scalar_t>();
    const int64_t *const starts = offsets.const_data_ptr<int64_t>(), *const source = sources.const_data_ptr<int64_t>();
    const MaxRows<scalar_t> segments{.x = from, .width = columns, .offsets = starts, .source = source};
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, GrainOf(rows, starts[rows], columns),
                     [&](int64_t begin, int64_t end) { LargestOfSegments(segments, begin, end, to); });
  });
  return out;
}

// grad, largest: [R, C]. Each entry that is as large as its segment's largest has an equal share of the gradient: first
// the shares, then a gather over the transposed segments.
Tensor MaxBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const Tensor& largest_in, const Tensor& offsets_in,
                      const Tensor& sources_in, const Tensor& out_offsets, const Tensor& out_rows) {
  CheckSegments(x_in, offsets_in, sources_in);
  const Tensor grad = grad_in.contiguous(), x = x_in.contiguous(), largest = largest_in.contiguous();
  const Tensor offsets = offsets_in.contiguous(), sources = sources_in.contiguous();
  const int64_t rows = offsets.numel() - 1, columns = x.size(1), nodes = x.size(0);
  Tensor shares = at::empty_like(grad), gx = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "segment_max_backward", [&] {
    const scalar_t *const from = x.const_data_ptr<scalar_t>(), *const most = largest.const_data_ptr<scalar_t>();
    const scalar_t* const g = grad.const_data_ptr<scalar_t>();
    const int64_t *const starts = offsets.const_data_ptr<int64_t>(), *const source = sources.const_data_ptr<int64_t>();
    const MaxRows<scalar_t> segments{.x = from, .width = columns, .offsets = starts, .source = source};
    scalar_t* const share = shares.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, GrainOf(rows, starts[rows], columns),
                     [&](int64_t begin, int64_t end) { SharesOfLargest(segments, most, g, begin, end, share); });
    const MaxGradient<scalar_t> gradient{.offsets = out_offsets.const_data_ptr<int32_t>(),
                                         .rows = out_rows.const_data_ptr<int32_t>(),
                                         .targets = rows,
                                         .x = from,
                                         .largest = most,
                                         .share = share,
                                         .width = columns};
    scalar_t* const to = gx.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, nodes, GrainOf(nodes, starts[rows], columns),
                     [&](int64_t begin, int64_t end) { GradientOfLargest(gradient, begin, end, to); });
  });
  return gx;
}

constexpr Operator<MaxForwardCpu> kMaxForward{"segment_max(Tensor x, Tensor offsets, Tensor sources) -> Tensor"};
constexpr Operator<MaxBackwardCpu> kMaxBackward{
    "segment_max_backward(Tensor grad, Tensor x, Tensor largest, Tensor offsets, Tensor sources, Tensor out_offsets, "
    "Tensor out_rows) -> Tensor"};

class SegmentMaxFunction : public torch::autograd::Function<SegmentMaxFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& offsets,
                        const Tensor& sources, const Tensor& out_offsets, const Tensor& out_rows) {
    Tensor largest = kMaxForward(x, offsets, sources);
    context->save_for_backward({x, largest, offsets, sources, out_offsets, out_rows});
    return largest;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {kMaxBackward(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]), Tensor(), Tensor(),
            Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kMaxForward.Register(library);
  kMaxBackward.Register(library);
}

Tensor SegmentMax(const Tensor& x, const Tensor& offsets, const Tensor& sources, const CsrTranspose& transpose) {
  if (IsFused(x)) {
    const bool differentiated = at::GradMode::is_enabled() && x.requires_grad();
    if (!differentiated) return kMaxForward(x, offsets, sources);
    const CsrTranspose out =
        transpose.offsets.defined() ? transpose : TransposeCsr(offsets, sources, /*nodes=*/x.size(0));
    return SegmentMaxFunction::apply(x, offsets, sources, out.offsets, out.rows);
  }
  const int64_t rows = offsets.size(0) - 1;
  const Tensor row = SegmentOfEntry(offsets, sources.size(0)).unsqueeze(1).expand({sources.size(0), x.size(1)});
  // Padding, which may be of rows that x does not have, goes to a row beyond the last. The value that rows begin with
  // takes a share of the gradient where it is as large as the result, even where it is not included: so no value of a
  // row equals it.
  const Tensor largest = at::full({rows + 1, x.size(1)}, -std::numeric_limits<double>::infinity(), x.options())
                             .scatter_reduce(0, row, SelectRows(x, sources.clamp_max(x.size(0) - 1)), "amax")
                             .narrow(0, 0, rows);
  const Tensor is_empty = offsets.narrow(0, 1, rows).eq(offsets.narrow(0, 0, rows)).unsqueeze(1);
  return at::where(is_empty, at::zeros({}, x.options()), largest);
}

}  // namespace permafrost::nn
