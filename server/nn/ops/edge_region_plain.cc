#include <ATen/ATen.h>

#include "nn/ops/edge_region.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Computes the steps of a region as tensors: [rows, width], or [1, width] for shared steps.
class PlainRegion {
 public:
  PlainRegion(const EdgeRegion& region, const std::vector<Tensor>& inputs, const Tensor& target_index, int64_t targets,
              const std::vector<Tensor>& indices)
      : region_(region), inputs_(inputs), target_index_(target_index), targets_(targets), indices_(indices) {}

  std::vector<Tensor> Run() {
    for (const RegionStep& s : region_.steps) {
      const int64_t rows = s.level == RegionLevel::kShared   ? 1
                           : s.level == RegionLevel::kTarget ? targets_
                                                             : target_index_.numel();
      values_.push_back(TraitsOf(s.op).by_value ? ByValue(s, rows) : Rows(s));
    }
    std::vector<Tensor> outputs;
    for (const int32_t o : region_.outputs) outputs.push_back(values_[static_cast<size_t>(o)]);
    return outputs;
  }

 private:
  const Tensor& Value(int32_t step) const { return values_[static_cast<size_t>(step)]; }

  Tensor Input(const RegionStep& s) const { return inputs_[static_cast<size_t>(s.input)].reshape({-1, s.width}); }

  // Returns [edges, width]: the target of each edge, repeated in each column.
  Tensor Targets(int64_t width) const { return target_index_.unsqueeze(1).expand({target_index_.numel(), width}); }

  Tensor Rows(const RegionStep& s) const {
    const auto zeros = [&](int64_t width) { return at::zeros({targets_, width}, inputs_[0].options()); };
    switch (s.op) {
      case RegionOp::kGather:
        return Input(s).index_select(0, indices_[static_cast<size_t>(s.index)]);
      case RegionOp::kConstant:
        return at::full({1, 1}, s.x, inputs_[0].options());
      case RegionOp::kExpand:
        return Value(s.a).index_select(0, target_index_);
      case RegionOp::kSum:
        return zeros(s.width).scatter_add(0, Targets(s.width), Value(s.a));
      case RegionOp::kMax:
      case RegionOp::kMin:
        return zeros(s.width).scatter_reduce(0, Targets(s.width), Value(s.a), s.op == RegionOp::kMax ? "amax" : "amin",
                                             /*include_self=*/false);
      case RegionOp::kCount:
        return zeros(1).scatter_add(0, Targets(1), at::ones({target_index_.numel(), 1}, inputs_[0].options()));
      case RegionOp::kRowSum:
        return Value(s.a).reshape({Value(s.a).size(0), s.width, s.group}).sum(2);
      case RegionOp::kDetach:
        return Value(s.a).detach();
      default:  // kShared, kTarget, kEdge
        return Input(s);
    }
  }

  // Returns an operand, repeated to [rows, width].
  Tensor Wide(int32_t step, int64_t rows, int64_t width) const {
    if (step == -1) return {};
    const Tensor& v = Value(step);
    const int64_t repeated = width / v.size(1);
    const Tensor of_width = repeated == 1 ? v : v.repeat_interleave(repeated, 1);
    return of_width.size(0) == rows ? of_width : of_width.expand({rows, width});
  }

  Tensor ByValue(const RegionStep& s, int64_t rows) const {
    const Tensor a = Wide(s.a, rows, s.width), b = Wide(s.b, rows, s.width), c = Wide(s.c, rows, s.width);
    switch (s.op) {
      case RegionOp::kAdd:
        return at::add(a, b, s.x);
      case RegionOp::kSub:
        return at::sub(a, b, s.x);
      case RegionOp::kMul:
        return a * b;
      case RegionOp::kDiv:
        return a / b;
      case RegionOp::kMaximum:
        return at::maximum(a, b);
      case RegionOp::kMinimum:
        return at::minimum(a, b);
      case RegionOp::kWhere:
        return at::where(c.ne(0), a, b);
      default:
        return Unary(s, a);
    }
  }

  static Tensor Unary(const RegionStep& s, const Tensor& a) {
    const auto type = a.scalar_type();
    switch (s.op) {
      case RegionOp::kNeg:
        return a.neg();
      case RegionOp::kAbs:
        return a.abs();
      case RegionOp::kExp:
        return a.exp();
      case RegionOp::kLog:
        return a.log();
      case RegionOp::kSqrt:
        return a.sqrt();
      case RegionOp::kRsqrt:
        return a.rsqrt();
      case RegionOp::kReciprocal:
        return a.reciprocal();
      case RegionOp::kSigmoid:
        return a.sigmoid();
      case RegionOp::kTanh:
        return a.tanh();
      case RegionOp::kRelu:
        return a.relu();
      case RegionOp::kLeakyRelu:
        return at::leaky_relu(a, s.x);
      case RegionOp::kElu:
        return at::elu(a, s.x);
      case RegionOp::kSilu:
        return at::silu(a);
      case RegionOp::kSoftplus:
        return at::softplus(a);
      case RegionOp::kClampMin:
        return a.clamp_min(s.x);
      case RegionOp::kClampMax:
        return a.clamp_max(s.x);
      case RegionOp::kPower:
        return a.pow(s.x);
      case RegionOp::kScale:
        return a * s.x + s.y;
      case RegionOp::kLess:
        return a.lt(s.x).to(type);
      case RegionOp::kLessEqual:
        return a.le(s.x).to(type);
      case RegionOp::kGreater:
        return a.gt(s.x).to(type);
      case RegionOp::kGreaterEqual:
        return a.ge(s.x).to(type);
      case RegionOp::kEqual:
        return a.eq(s.x).to(type);
      default:  // kNotEqual
        return a.ne(s.x).to(type);
    }
  }

  const EdgeRegion& region_;
  const std::vector<Tensor>& inputs_;
  const Tensor& target_index_;
  int64_t targets_;
  const std::vector<Tensor>& indices_;
  std::vector<Tensor> values_;
};

}  // namespace

std::vector<Tensor> EdgeRegionPlain(const EdgeRegion& region, const std::vector<Tensor>& inputs,
                                    const Tensor& target_index, int64_t targets, const std::vector<Tensor>& indices) {
  TORCH_CHECK(!inputs.empty(), "edge_region: without inputs there is no type of values");
  return PlainRegion(region, inputs, target_index, targets, indices).Run();
}

}  // namespace permafrost::nn
