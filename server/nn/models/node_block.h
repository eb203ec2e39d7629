// The computation graph of one step of a node-level model: a sampled, padded block (data/batching/block_batch.h), or a
// whole graph. Threads: a value.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/ops/csr_transpose.h"

namespace permafrost::nn {

struct NodeBlock {
  // [L + 1] rows whose representation is needed at each depth, from the last layer's output (the seeds) to the input:
  // row_ends[L] == N. Layer l = 1..L makes rows [0, row_ends[L - l]) from rows [0, row_ends[L - l + 1]). In a whole
  // graph all are N. [L] where the first layer's sums are made already: row_ends[L - 1] == N.
  std::vector<int64_t> row_ends;
  // [N, F] float32; with L row_ends [N, 2 * F], of each row the mean of its neighbours' features and then its own; or
  // undefined, and the rows as CSR over columns 0..F-1:
  at::Tensor features;
  at::Tensor feature_offsets;  // [N + 1] int64
  at::Tensor feature_columns;  // [entries] int64
  at::Tensor feature_values;   // [entries] float32; undefined: all are 1
  // In-edges as CSR: of row r they come from rows sources[offsets[r] .. offsets[r + 1]), for r below the last row_ends
  // but one. `sources` may be longer than the last offset: the rest is padding that no row reaches.
  at::Tensor offsets;       // [row_ends[row_ends.size() - 2] + 1] int64
  at::Tensor sources;       // [E] int64
  at::Tensor edge_weights;  // [E] float32; undefined: all are 1
  // [E, columns] float32, or int64 categories; undefined: the model reads none. Any in range in padding.
  at::Tensor edge_features;
  // The transpose of all rows, where it is known beforehand; undefined: a step that needs it makes it.
  CsrTranspose transpose;
  at::Tensor labels;  // [row_ends[0], targets] float32, NaN where missing and in padding rows
  // [N] int64: place of each row among the real rows, below 0 in padding; what stands for the row where dropout draws
  // its masks, so that padding between the segments shifts none, and which rows batch norm sees. Undefined: its own
  // place.
  at::Tensor row_keys;
  at::Tensor step;  // [1] int64: optimizer steps done; which masks dropout draws
};

}  // namespace permafrost::nn
