#include "nn/ops/lowering.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "nn/gpu/operators.h"
#include "nn/kernels/bfloat16.h"
#include "nn/ops/graph_conv.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

thread_local spec::Lowering lowering_here = spec::Lowering::kAuto;
thread_local spec::Precision precision_here = spec::Precision::kFloat32;

// Uses clone(), because a recording below autograd records contiguous() as a view, even where it copies.
Tensor InOrder(const Tensor& x) { return x.is_contiguous() ? x : x.clone(at::MemoryFormat::Contiguous); }

// Returns x * weight^T. On MPS, the product runs as one kernel without a graph if both factors are contiguous.
Tensor PlainLinear(const Tensor& x, const Tensor& weight) { return at::linear(InOrder(x), InOrder(weight)); }

class ShapeFreeLinear : public torch::autograd::Function<ShapeFreeLinear> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    const at::AutoDispatchBelowADInplaceOrView below;
    return PlainLinear(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const at::AutoDispatchBelowADInplaceOrView below;
    return {context->needs_input_grad(0) ? PlainLinear(grads[0], weight.t()) : Tensor(),
            context->needs_input_grad(1) ? PlainLinear(grads[0].t(), x.t()) : Tensor()};
  }
};

// Returns `index` as gather and scatter_add need it for the values of `of`: int64, [E, C], or [E] if `of` has one
// dimension.
Tensor ForEachColumn(const Tensor& index, const Tensor& of) {
  const Tensor rows = index.to(at::kLong);
  return of.dim() == 1 ? rows : rows.unsqueeze(1).expand({rows.size(0), of.size(1)});
}

}  // namespace

LoweringScope::LoweringScope(spec::Lowering lowering, spec::Precision precision)
    : outer_(std::exchange(lowering_here, lowering)), outer_precision_(std::exchange(precision_here, precision)) {}
LoweringScope::~LoweringScope() {
  lowering_here = outer_;
  precision_here = outer_precision_;
}

bool IsFused(const Tensor& x) { return x.is_cpu() && lowering_here == spec::Lowering::kAuto; }

bool HasKernels(const Tensor& x) {
  if (IsFused(x)) return true;
  return x.is_cuda() && lowering_here == spec::Lowering::kAuto && gpu::Kernels() != nullptr &&
         (!x.is_floating_point() || (x.scalar_type() == at::kFloat && !RoundsFactors(x)));
}

bool HasColumnKernels(const Tensor& x, int64_t rows) { return IsFused(x) || (HasKernels(x) && rows <= gpu::kMostRows); }

bool IsShapeFree(const Tensor& x) {
  return lowering_here == spec::Lowering::kShapeFree || (lowering_here == spec::Lowering::kAuto && x.is_mps());
}

bool RoundsFactors(const Tensor& x) {
  return precision_here == spec::Precision::kBfloat16 && x.scalar_type() == at::kFloat;
}

bool CanRoundFactors() { return HasBfloat16Products(); }

Tensor LinearRows(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (RoundsFactors(x)) {
    if (IsFused(x)) {
      const Tensor added = bias.defined() ? bias : at::zeros({weight.size(0)}, x.options());
      return GraphConv(x, {}, weight, added, {}, {.relu = false});
    }
    const Tensor product = at::linear(x.to(at::kBFloat16), weight.to(at::kBFloat16)).to(at::kFloat);
    return bias.defined() ? product + bias : product;
  }
  if (IsShapeFree(x)) {
    const Tensor product = ShapeFreeLinear::apply(x, weight);
    return bias.defined() ? product + bias : product;
  }
  return bias.defined() ? at::addmm(bias, x, weight.t()) : x.mm(weight.t());
}

Tensor ReluRows(const Tensor& x) { return IsShapeFree(x) ? at::leaky_relu(x, 0) : x.relu(); }

Tensor SelectRows(const Tensor& x, const Tensor& index) {
  return IsShapeFree(x) ? x.gather(0, ForEachColumn(index, x)) : x.index_select(0, index);
}

Tensor AddRows(const Tensor& x, const Tensor& index, const Tensor& values) {
  return IsShapeFree(x) ? x.scatter_add(0, ForEachColumn(index, x), values) : x.index_add(0, index, values);
}

}  // namespace permafrost::nn
