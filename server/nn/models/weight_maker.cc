#include "nn/models/weight_maker.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <utility>

#include "nn/ops/lowering.h"

namespace permafrost::nn {

using at::Tensor;

Tensor Linear::operator()(const Tensor& x) const { return LinearRows(x, weight, bias); }

WeightMaker::WeightMaker(uint64_t seed, at::Device device, TensorSet& tensors)
    : device_(device), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)), tensors_(tensors) {}

// draw: fills a tensor on the CPU.
template <class Draw>
Tensor WeightMaker::Drawn(std::string name, at::IntArrayRef sizes, const Draw& draw) {
  Tensor value = at::empty(sizes, at::TensorOptions(at::kFloat).device(device_.is_meta() ? device_ : at::kCPU));
  if (!device_.is_meta()) value = draw(value).to(device_);
  return tensors_.AddParameter(std::move(name), std::move(value));
}

Tensor WeightMaker::Uniform(std::string name, at::IntArrayRef sizes, double bound) {
  return Drawn(std::move(name), sizes, [&](Tensor& value) { return value.uniform_(-bound, bound, generator_); });
}

Tensor WeightMaker::Filled(std::string name, at::IntArrayRef sizes, double value) {
  return tensors_.AddParameter(std::move(name), at::full(sizes, value, at::TensorOptions(at::kFloat).device(device_)));
}

Tensor WeightMaker::Glorot(std::string name, at::IntArrayRef sizes, int64_t in, int64_t out) {
  return Uniform(std::move(name), sizes, std::sqrt(6.0 / static_cast<double>(in + out)));
}

Tensor WeightMaker::Normal(std::string name, at::IntArrayRef sizes) {
  return Drawn(std::move(name), sizes, [&](Tensor& value) { return value.normal_(0, 1, generator_); });
}

Linear WeightMaker::MakeLinear(const std::string& name, int64_t in, int64_t out) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const Tensor weight = Uniform(name + ".weight", {out, in}, bound);
  return {weight, Uniform(name + ".bias", {out}, bound)};
}

Tensor WeightMaker::Buffer(std::string name, at::IntArrayRef sizes, double value, at::ScalarType type) {
  return tensors_.AddBuffer(std::move(name), at::full(sizes, value, at::TensorOptions(type).device(device_)));
}

}  // namespace permafrost::nn
