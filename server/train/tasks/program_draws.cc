#include "train/tasks/program_draws.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numbers>
#include <string_view>
#include <vector>

#include "nn/ops/dropout.h"

namespace permafrost::train {
namespace {

using at::Tensor;
using torch::jit::Stack;

// The numbers of one node.
class Source {
 public:
  Source(uint64_t seed, int64_t place, const Tensor& step) : seed_(seed), place_(place), step_(step) {}

  // Zeros and 1 / (1 - p), of any type and rank; 1: none is kept.
  Tensor Mask(const Tensor& x, double p) const {
    const Tensor ones = at::ones(Flat(x), x.options().dtype(at::kFloat).requires_grad(false));
    const Tensor kept = p >= 1 ? at::zeros_like(ones) : nn::Dropout(ones, step_, Key(0), p);
    return kept.view(x.sizes()).to(x.scalar_type());
  }
  Tensor Dropout(const Tensor& x, double p) const {
    if (p < 1 && x.dim() == 2 && x.scalar_type() == at::kFloat) return nn::Dropout(x, step_, Key(0), p);
    return x * Mask(x, p);
  }
  // [0, 1) of the size and type of x. stream: another one for other numbers.
  Tensor Uniform(const Tensor& x, int stream = 0) const {
    const Tensor like = at::zeros(Flat(x), x.options().dtype(at::kFloat).requires_grad(false));
    const Tensor drawn = nn::Uniform(like, step_, Key(stream)).view(x.sizes());
    return at::isFloatingType(x.scalar_type()) ? drawn.to(x.scalar_type()) : drawn;
  }
  // Source: Box and Muller 1958.
  Tensor Normal(const Tensor& x) const {
    const Tensor radius = (Uniform(x, 0).neg() + 1).log().mul(-2).sqrt();
    return radius * (Uniform(x, 1) * (2 * std::numbers::pi)).cos();
  }

 private:
  static std::vector<int64_t> Flat(const Tensor& x) {
    const int64_t rows = x.dim() == 0 ? 1 : x.size(0);
    return {rows, x.numel() / std::max<int64_t>(rows, 1)};
  }
  nn::DropoutKey Key(int stream) const {
    // Streams lie beyond the seeds of others.
    constexpr uint64_t kStream = 0x9e3779b97f4a7c15;
    return {.seed = seed_ + static_cast<uint64_t>(stream) * kStream, .layer = place_};
  }

  const uint64_t seed_;
  const int64_t place_;
  const Tensor& step_;
};

// A tensor of the sizes and the type that a factory's arguments say, from `sizes` on: sizes, dtype, layout, device.
Tensor Zeros(const Stack& stack, size_t sizes, const Tensor& step) {
  const auto type = stack[sizes + 1].toOptional<at::ScalarType>().value_or(at::kFloat);
  return at::zeros(stack[sizes].toIntVector(), step.options().dtype(type));
}
Tensor ZerosLike(const Stack& stack) {
  const Tensor x = stack[0].toTensor();
  return at::zeros_like(x, x.options().dtype(stack[1].toOptional<at::ScalarType>()).requires_grad(false));
}

// Fills `x` in place.
Tensor Fill(const Tensor& x, const Tensor& values) { return x.copy_(values); }

Tensor Bernoulli(const Source& source, const Tensor& x, const Tensor& p) {
  return source.Uniform(at::zeros_like(p, p.options().dtype(at::kFloat))).lt(p).to(x.scalar_type());
}

Tensor Integers(const Source& source, const Tensor& like, int64_t low, int64_t high) {
  const Tensor uniform = source.Uniform(at::zeros_like(like, like.options().dtype(at::kFloat)));
  return (uniform * static_cast<double>(high - low))
      .floor()
      .clamp_max(static_cast<double>(high - low - 1))
      .add(low)
      .to(like.scalar_type());
}

// A row for each operator: the results for the arguments of its schema, without the generator.
struct Row {
  std::string_view target;  // without "torch.ops.aten."
  std::vector<c10::IValue> (*draw)(const Source& source, const Stack& stack, const Tensor& step);
};
using Values = std::vector<c10::IValue>;
constexpr Row kRows[] = {
    {"dropout.default", [](const Source& source, const Stack& s,
                           const Tensor&) { return Values{source.Dropout(s[0].toTensor(), s[1].toDouble())}; }},
    {"dropout_.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{x.mul_(source.Mask(x, s[1].toDouble()))};
     }},
    {"native_dropout.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor(), mask = source.Mask(x, s[1].toDouble());
       return Values{x * mask, mask.ne(0)};
     }},
    {"feature_dropout.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
       std::copy_n(x.sizes().begin(), std::min<int64_t>(2, x.dim()), sizes.begin());
       return Values{x * source.Mask(at::zeros(sizes, x.options().requires_grad(false)), s[1].toDouble())};
     }},
    {"rand_like.default",
     [](const Source& source, const Stack& s, const Tensor&) { return Values{source.Uniform(ZerosLike(s))}; }},
    {"randn_like.default",
     [](const Source& source, const Stack& s, const Tensor&) { return Values{source.Normal(ZerosLike(s))}; }},
    {"rand.default", [](const Source& source, const Stack& s,
                        const Tensor& step) { return Values{source.Uniform(Zeros(s, 0, step))}; }},
    {"randn.default",
     [](const Source& source, const Stack& s, const Tensor& step) { return Values{source.Normal(Zeros(s, 0, step))}; }},
    {"bernoulli.default", [](const Source& source, const Stack& s,
                             const Tensor&) { return Values{Bernoulli(source, s[0].toTensor(), s[0].toTensor())}; }},
    {"bernoulli.p",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{
           source.Uniform(at::zeros_like(x, x.options().dtype(at::kFloat))).lt(s[1].toDouble()).to(x.scalar_type())};
     }},
    {"bernoulli_.float",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{Fill(x, source.Uniform(at::zeros_like(x, x.options().dtype(at::kFloat))).lt(s[1].toDouble()))};
     }},
    {"bernoulli_.Tensor",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{Fill(x, Bernoulli(source, x, s[1].toTensor()))};
     }},
    {"uniform_.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       const double from = s[1].toDouble(), to = s[2].toDouble();
       return Values{Fill(x, source.Uniform(x) * (to - from) + from)};
     }},
    {"normal_.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{Fill(x, source.Normal(x) * s[2].toDouble() + s[1].toDouble())};
     }},
    {"exponential_.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{Fill(x, (source.Uniform(x).neg() + 1).log() / -s[1].toDouble())};
     }},
    {"randint.default",
     [](const Source& source, const Stack& s, const Tensor& step) {
       const auto type = s[2].toOptional<at::ScalarType>().value_or(at::kLong);
       const Tensor like = at::zeros(s[1].toIntVector(), step.options().dtype(type));
       return Values{Integers(source, like, 0, s[0].toInt())};
     }},
    {"randint.low",
     [](const Source& source, const Stack& s, const Tensor& step) {
       const auto type = s[3].toOptional<at::ScalarType>().value_or(at::kLong);
       const Tensor like = at::zeros(s[2].toIntVector(), step.options().dtype(type));
       return Values{Integers(source, like, s[0].toInt(), s[1].toInt())};
     }},
};

const Row* FindRow(const program::Node& node) {
  std::string_view target = node.target;
  constexpr std::string_view kPrefix = "torch.ops.aten.";
  if (!target.starts_with(kPrefix)) return nullptr;
  target.remove_prefix(kPrefix.size());
  const auto* const row = std::ranges::find(kRows, target, &Row::target);
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

bool CanDraw(const program::Node& node) { return FindRow(node) != nullptr; }

void Draw(const program::Node& node, uint64_t seed, int64_t place, const Tensor& step, Stack& stack) {
  stack = FindRow(node)->draw(Source(seed, place, step), stack, step);
}

}  // namespace permafrost::train
