// Tells how many rows of a padded batch are real.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>

namespace permafrost::nn {

// The value of real_rows, [1] int64 on the CPU. Errors, which name `op`: it is outside 0..rows.
inline int64_t RealRows(const at::Tensor& real_rows, int64_t rows, const char* op) {
  const int64_t real = real_rows.const_data_ptr<int64_t>()[0];
  TORCH_CHECK(real >= 0 && real <= rows, op, ": real_rows: ", real, " is outside 0..", rows);
  return real;
}

}  // namespace permafrost::nn
