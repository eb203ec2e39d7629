// Named parameters and buffers of a model, in registration order.
// Threads: none of its own; the device thread uses it.
// Invariant: names are unique; tensors keep their storage for the model's life (values are copied in, never swapped).
#pragma once

#include <ATen/core/Tensor.h>

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
  // Returns the tensor stored. Parameters require gradients, buffers do not.
  at::Tensor AddParameter(std::string name, at::Tensor value);
  at::Tensor AddBuffer(std::string name, at::Tensor value);

  // Parameters whose names begin with one of `prefixes`, up to a dot or their end, are buffers from now on: they get no
  // gradient, and are saved and loaded by name as before. Errors: InvalidArgument for a prefix of no parameter, naming
  // prefixes that there are, and where no parameter is left; nothing is changed then.
  absl::Status Fix(const std::vector<std::string>& prefixes);

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }
  // Parameters, then buffers.
  std::vector<NamedTensor> All() const;
  // The number of parameters that Fix has fixed.
  int64_t fixed_parameters() const { return fixed_; }
  // Counts the fixed ones too.
  int64_t num_parameter_values() const;

  // Copies values in by name. Errors: InvalidArgument naming the first tensor that is missing, unknown, or of another
  // shape or type.
  absl::Status CopyFrom(const std::vector<NamedTensor>& values);

 private:
  std::vector<NamedTensor> parameters_, buffers_;
  int64_t fixed_ = 0, fixed_values_ = 0;
};

// Deep copies on the same device.
std::vector<NamedTensor> Clone(const std::vector<NamedTensor>& tensors);
// Copies `from` into `to`, equal in number, order and shape.
void CopyInto(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to);
// Copies values in by name into existing tensors. Errors as TensorSet::CopyFrom.
absl::Status CopyByName(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to);

}  // namespace permafrost::nn
