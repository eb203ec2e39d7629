// Makes a model's tensors: drawn on the CPU from one generator in the order of the calls (equal on every device), then
// moved. Threads: the device thread.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "nn/tensor_set.h"

namespace permafrost::nn {

struct Linear {
  at::Tensor weight, bias;  // [out, in], [out] or undefined
  at::Tensor operator()(const at::Tensor& x) const;
};

class WeightMaker {
 public:
  // `tensors` outlives it. device kMeta: nothing is drawn.
  WeightMaker(uint64_t seed, at::Device device, TensorSet& tensors);

  // Parameters. Uniform: in -bound..bound.
  at::Tensor Uniform(std::string name, at::IntArrayRef sizes, double bound);
  at::Tensor Filled(std::string name, at::IntArrayRef sizes, double value);
  // Uniform with bound sqrt(6 / (in + out)). Source: Glorot and Bengio 2010, as PyG's `glorot`.
  at::Tensor Glorot(std::string name, at::IntArrayRef sizes, int64_t in, int64_t out);
  // With mean 0 and deviation 1, as torch.nn.Embedding.
  at::Tensor Normal(std::string name, at::IntArrayRef sizes);
  // NAME.weight and NAME.bias with the defaults of torch.nn.Linear.
  Linear MakeLinear(const std::string& name, int64_t in, int64_t out);
  at::Tensor Buffer(std::string name, at::IntArrayRef sizes, double value, at::ScalarType type = at::kFloat);

 private:
  template <class Draw>
  at::Tensor Drawn(std::string name, at::IntArrayRef sizes, const Draw& draw);

  at::Device device_;
  at::Generator generator_;
  TensorSet& tensors_;
};

}  // namespace permafrost::nn
