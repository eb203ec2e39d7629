// Named parameters and buffers of a model, in registration order, and the maker of these tensors.
// Threads: none of its own; the device thread uses it.
// Invariant: names are unique; tensors keep their storage for the model's life (values are copied in, never swapped).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace permafrost::nn {

struct NamedTensor {
  std::string name;
  at::Tensor value;
};

class TensorSet {
 public:
  // Returns the stored tensor. Parameters require gradients; buffers do not.
  at::Tensor AddParameter(std::string name, at::Tensor value);
  at::Tensor AddBuffer(std::string name, at::Tensor value);
  // Adds a parameter that is fixed from the beginning: it gets no gradient, but still counts as a parameter.
  at::Tensor AddFixedParameter(std::string name, at::Tensor value);
  // Adds a tensor that a step reads and that never changes. It is neither saved nor loaded, and All() leaves it out.
  void AddConstant(std::string name, at::Tensor value) { constants_.push_back({std::move(name), std::move(value)}); }

  // Turns a parameter into a buffer if its name begins with one of `prefixes`, up to a dot or the end of the name.
  // Such a buffer gets no gradient, and is saved and loaded by name as before. Errors: InvalidArgument if a prefix
  // matches no parameter (the message names existing prefixes), or if no parameter is left to train; then nothing
  // changes.
  absl::Status Fix(const std::vector<std::string>& prefixes);

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }
  const std::vector<NamedTensor>& constants() const { return constants_; }
  // Returns parameters first, then buffers.
  std::vector<NamedTensor> All() const;
  // Returns the number of fixed parameters.
  int64_t fixed_parameters() const { return fixed_; }
  // Returns the number of values in all parameters, fixed ones included.
  int64_t num_parameter_values() const;

  // Copies `values` by name into the tensors of this set. Errors: InvalidArgument that names the first tensor that is
  // missing, unknown, or of another shape or type.
  absl::Status CopyFrom(const std::vector<NamedTensor>& values);

 private:
  std::vector<NamedTensor> parameters_, buffers_, constants_;
  int64_t fixed_ = 0, fixed_values_ = 0;
};

// Returns deep copies on the same device.
std::vector<NamedTensor> Clone(const std::vector<NamedTensor>& tensors);
// Copies `from` into `to`; both have the same number, order and shapes.
void CopyInto(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to);
// Copies the values of `from` by name into the existing tensors `to`. Errors: same as TensorSet::CopyFrom.
absl::Status CopyByName(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to);

struct Linear {
  at::Tensor weight, bias;  // [out, in], [out] or undefined
  at::Tensor operator()(const at::Tensor& x) const;
};

// Makes the tensors of a model. It draws them on the CPU from one generator, in the order of the calls, and then
// moves them to the device. So they are equal on every device.
class WeightMaker {
 public:
  // `tensors` must outlive the maker. On device kMeta nothing is drawn.
  WeightMaker(uint64_t seed, at::Device device, TensorSet& tensors);

  // Uniform, Filled, Glorot and Normal each make a parameter. Uniform draws from -bound..bound.
  at::Tensor Uniform(std::string name, at::IntArrayRef sizes, double bound);
  at::Tensor Filled(std::string name, at::IntArrayRef sizes, double value);
  // Draws uniformly with bound sqrt(6 / (in + out)). Source: Glorot and Bengio 2010, as PyG's `glorot`.
  at::Tensor Glorot(std::string name, at::IntArrayRef sizes, int64_t in, int64_t out);
  // Draws weights with mean 0 and standard deviation 1, as torch.nn.Embedding does.
  at::Tensor Normal(std::string name, at::IntArrayRef sizes);
  // Makes NAME.weight and NAME.bias with the defaults of torch.nn.Linear.
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
