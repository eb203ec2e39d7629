// Feature rows of a large graph, read in order rather than by a sample.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Rows [begin, end) as float32 into out[(end - begin) * width]. Errors: DataLoss.
absl::Status ReadRows(const DenseFeatures& features, uint64_t begin, uint64_t end, float* out);

struct SparseRows {
  std::vector<int64_t> offsets;   // [rows + 1], beginning at 0
  std::vector<uint32_t> columns;  // < width
  std::vector<float> values;      // empty: all are 1
};
absl::StatusOr<SparseRows> ReadRows(const SparseFeatures& features, uint64_t begin, uint64_t end);

}  // namespace permafrost::data
