// The form of one feature table, as an encoder sees it. Threads: a value.
#pragma once

#include <cstdint>
#include <vector>

namespace permafrost::nn {

struct EncoderInput {
  // Categories of each column, values 0..n-1. Empty: float columns.
  std::vector<int64_t> categories;
  // Float columns. 0 with no categories: there are no such features; in a set one learned vector stands for all rows.
  int64_t float_columns = 0;
  bool has_features() const { return float_columns > 0 || !categories.empty(); }
};

}  // namespace permafrost::nn
