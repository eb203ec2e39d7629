#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "nn/tensor_set.h"

namespace permafrost::train {

// Returns the Euclidean norm over all tensors whose names begin with `prefix`.
inline double NormOf(const std::vector<nn::NamedTensor>& tensors, std::string_view prefix) {
  double squares = 0;
  for (const nn::NamedTensor& t : tensors)
    if (t.name.starts_with(prefix)) squares += t.value.square().sum().item<double>();
  return std::sqrt(squares);
}

}  // namespace permafrost::train
