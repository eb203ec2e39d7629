#include "nn/ops/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "nn/kernels/norm.h"
#include "nn/ops/chunks.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// If there are at least this many values, several threads share the work. At half as many values (40 us of work) two
// threads were as fast as one: `bench/run parallel --filter drops`.
constexpr int64_t kDropGrain = 1 << 15;
constexpr int64_t kLow32 = 0xffffffff;

void Check(const Tensor& x, const Tensor& step, const OptionalTensor& row_keys, double p) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "dropout: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  TORCH_CHECK(step.numel() == 1 && step.scalar_type() == at::kLong, "dropout: step must be [1] int64");
  TORCH_CHECK(
      !row_keys || (row_keys->dim() == 1 && row_keys->size(0) == x.size(0) && row_keys->scalar_type() == at::kLong),
      "dropout: row_keys must be [N] int64");
  TORCH_CHECK(p >= 0 && p < 1, "dropout: p: ", p, " is not in 0 <= p < 1");
}

Tensor DropoutCpu(const Tensor& x_in, const Tensor& step, const OptionalTensor& row_keys_in, int64_t seed,
                  int64_t layer, double p) {
  Check(x_in, step, row_keys_in, p);
  const Tensor x = x_in.contiguous();
  const Tensor row_keys = row_keys_in ? row_keys_in->contiguous() : Tensor();
  const int64_t* const row_key = row_keys.defined() ? row_keys.const_data_ptr<int64_t>() : nullptr;
  Tensor y = at::empty_like(x);
  const int64_t columns = x.size(1);
  const DropoutMask mask{DropoutKeyOf(DropoutSeed(seed, layer), step.const_data_ptr<int64_t>()[0]),
                         DropoutThreshold(p)};
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dropout", [&] {
    const auto scale = static_cast<scalar_t>(1 / (1 - p));
    const scalar_t* const from = x.const_data_ptr<scalar_t>();
    scalar_t* const to = y.mutable_data_ptr<scalar_t>();
    ParallelFor(0, x.size(0), std::max<int64_t>(1, kDropGrain / std::max<int64_t>(1, columns)),
                [&](int64_t begin, int64_t end) {
                  DropRows<scalar_t>(mask, scale, row_key == nullptr ? nullptr : row_key + begin, begin, end - begin,
                                     columns, from + begin * columns, to + begin * columns);
                });
  });
  return y;
}

// Returns (h * factor) mod 2^32, staying within int64's range.
Tensor MultiplyLow(const Tensor& h, int64_t factor) {
  const Tensor low = at::bitwise_and(h, 0xffff) * factor;
  const Tensor high = at::bitwise_and(at::bitwise_right_shift(h, 16) * factor, 0xffff);
  return at::bitwise_and(low + at::bitwise_left_shift(high, 16), kLow32);
}

Tensor MixTensor(Tensor h) {
  h = at::bitwise_xor(h, at::bitwise_right_shift(h, 16));
  h = MultiplyLow(h, kDropoutMix1);
  h = at::bitwise_xor(h, at::bitwise_right_shift(h, 13));
  h = MultiplyLow(h, kDropoutMix2);
  return at::bitwise_xor(h, at::bitwise_right_shift(h, 16));
}

// Computes the hashes [N, C] with tensor operators, for devices on which the host cannot read `step`.
Tensor HashComposite(const Tensor& x, const Tensor& step, const OptionalTensor& row_keys, int64_t seed, int64_t layer) {
  const Tensor low = at::bitwise_and(step, kLow32), high = at::bitwise_and(at::bitwise_right_shift(step, 32), kLow32);
  const Tensor seeded = at::bitwise_xor(low, static_cast<int64_t>(DropoutSeed(seed, layer)));
  const Tensor key = MixTensor(at::bitwise_xor(MixTensor(seeded), high));
  const Tensor places = row_keys ? at::bitwise_and(*row_keys, kLow32) : at::arange(x.size(0), step.options());
  const Tensor rows = MixTensor(at::bitwise_xor(places, key)).unsqueeze(1);
  const Tensor columns = MultiplyLow(at::arange(x.size(1), step.options()), kDropoutColumnStride).unsqueeze(0);
  return MixTensor(at::bitwise_xor(rows, columns));
}

Tensor DropoutComposite(const Tensor& x, const Tensor& step, const OptionalTensor& row_keys, int64_t seed,
                        int64_t layer, double p) {
  Check(x, step, row_keys, p);
  const Tensor dropped = HashComposite(x, step, row_keys, seed, layer).lt(static_cast<int64_t>(DropoutThreshold(p)));
  return at::where(dropped, at::zeros({}, x.options()), x * (1 / (1 - p)));
}

// The number of bits of a hash that a float32 can represent.
constexpr int kUniformBits = 24;

Tensor UniformCpu(const Tensor& like, const Tensor& step, int64_t seed, int64_t layer) {
  Check(like, step, std::nullopt, 0);
  Tensor y = at::empty(like.sizes(), like.options().dtype(at::kFloat));
  const uint32_t key = DropoutKeyOf(DropoutSeed(seed, layer), step.const_data_ptr<int64_t>()[0]);
  auto* const to = y.mutable_data_ptr<float>();
  const int64_t columns = like.size(1);
  ParallelFor(0, like.size(0), std::max<int64_t>(1, kDropGrain / std::max<int64_t>(1, columns)),
              [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                  const uint32_t row = DropoutMix(static_cast<uint32_t>(r) ^ key);
                  for (int64_t c = 0; c < columns; ++c) {
                    const uint32_t hash = DropoutMix(row ^ (static_cast<uint32_t>(c) * kDropoutColumnStride));
                    to[r * columns + c] = std::ldexp(static_cast<float>(hash >> (32 - kUniformBits)), -kUniformBits);
                  }
                }
              });
  return y;
}

Tensor UniformComposite(const Tensor& like, const Tensor& step, int64_t seed, int64_t layer) {
  Check(like, step, std::nullopt, 0);
  const Tensor hash = HashComposite(like, step, std::nullopt, seed, layer);
  return at::bitwise_right_shift(hash, 32 - kUniformBits).to(at::kFloat) * std::ldexp(1.0, -kUniformBits);
}

constexpr Operator<UniformCpu> kUniform{"uniform(Tensor like, Tensor step, int seed, int layer) -> Tensor"};
constexpr Operator<DropoutCpu> kDropout{
    "dropout(Tensor x, Tensor step, Tensor? row_keys, int seed, int layer, float p) -> Tensor"};

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& step,
                        const OptionalTensor& row_keys, int64_t seed, int64_t layer, double p) {
    context->save_for_backward({step, row_keys.value_or(Tensor())});
    context->saved_data["seed"] = seed;
    context->saved_data["layer"] = layer;
    context->saved_data["p"] = p;
    return kDropout(x, step, row_keys, seed, layer, p);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    auto& data = context->saved_data;
    const auto saved = context->get_saved_variables();
    return {kDropout(grads[0], saved[0], IfDefined(saved[1]), data["seed"].toInt(), data["layer"].toInt(),
                     data["p"].toDouble()),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kDropout.Register(library, DropoutComposite);
  kUniform.Register(library, UniformComposite);
}

Tensor Dropout(const Tensor& x, const Tensor& step, const DropoutKey& key, double p, const Tensor& row_keys) {
  if (p == 0) return x;
  return DropoutFunction::apply(x, step, IfDefined(row_keys), static_cast<int64_t>(key.seed), key.layer, p);
}

Tensor Uniform(const Tensor& like, const Tensor& step, const DropoutKey& key) {
  return kUniform(like, step, static_cast<int64_t>(key.seed), key.layer);
}

}  // namespace permafrost::nn
