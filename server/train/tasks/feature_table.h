// A table of dense features, from which the device gathers the rows of a job's sampled blocks. The table lies in the
// device's memory, in pinned memory of the host, or partly in each. In a table of two parts, the device holds the
// rows that are wanted most. A batch holds only row numbers.
// Threads: SplitFeatures and MostWanted are pure functions; all else belongs to the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "device/backend.h"

namespace permafrost::train {

// The most that a table may take, in bytes.
struct FeatureMemory {
  uint64_t device = 0;  // device memory that steps leave free
  // Device memory that a step takes in addition if the table has two parts.
  uint64_t gathering = 0;
  // Pinned memory of the host; 0 if the device cannot read pinned memory.
  uint64_t host = 0;
};

// The numbers of rows of a table that lie on the device and on the host. If both are 0, there is no table, and the
// host gathers the features.
struct FeatureSplit {
  int64_t device = 0, host = 0;
  int64_t rows() const { return device + host; }
  bool operator==(const FeatureSplit&) const = default;
};

// Decides where the rows of a table lie. If all rows fit on the device, they lie there. Otherwise the device holds as
// many as fit, and the other rows are pinned on the host. If the host has no room for them, both counts are 0. A
// table of two parts also takes sizeof(int32_t) bytes per row on the device, for FeatureTable::places.
FeatureSplit SplitFeatures(int64_t rows, int64_t row_bytes, const FeatureMemory& memory);

// Returns how many more bytes a process may pin if it may use `process` bytes and uses `taken` of them. The result is
// at most half of `process`, since the system cannot reclaim pinned memory.
uint64_t PinnableBytes(uint64_t process, uint64_t taken);

// Returns a mask of the `count` rows with the highest values of `wanted`. If rows have equal values, earlier rows are
// preferred.
std::vector<bool> MostWanted(std::span<const float> wanted, int64_t count);

// The tensors of a table, as the device sees them. They are undefined if the host gathers.
struct FeatureTable {
  at::Tensor rows;  // [n, width] float32
  // Defined only if the table has two parts. `rest` holds the rows that are not in `rows`. `places`, [nodes + 1]
  // int32, holds the place of each row in the concatenation of `rows` and `rest`.
  at::Tensor rest, places;
  bool defined() const { return rows.defined(); }
};

// Returns the rows of a block, [numbers, width]. `numbers` is int64 on the device. Each element is the index of a
// node, or the number of nodes for a row of zeros.
at::Tensor GatherRows(const FeatureTable& table, const at::Tensor& numbers);

// Returns, for each row of a block, the mean of its neighbours followed by the row itself, [numbers, 2 * width].
// `offsets` and `neighbors` are the neighbours of the block's rows in CSR form. `neighbors` holds row numbers of the
// table, like `numbers`, but as int32. Entries beyond the last offset are padding. A row without neighbours gets the
// mean 0. The table must have one part.
at::Tensor GatherMeans(const FeatureTable& table, const at::Tensor& numbers, const at::Tensor& offsets,
                       const at::Tensor& neighbors);

// Returns how many rows a table of this graph has: one for each node, and one of zeros that pads blocks.
int64_t FeatureTableRows(const data::GraphSummary& graph);
// Returns the bytes of one node's features as float32.
int64_t FeatureRowBytes(const data::GraphSummary& graph);

// Returns a line for a job's log that tells where the features lie.
std::string DescribeFeatures(const FeatureSplit& split, int64_t row_bytes);

struct FeatureTableOptions {
  c10::Device device;
  FeatureSplit split;
  // Allocates the part of a table that lies on the host, if there is one (Backend::AllocatePinned).
  std::function<std::optional<device::PinnedRows>(int64_t rows, int64_t width)> allocate_pinned = nullptr;
  // The number of times that each node is expected to be gathered. In a table of two parts, the device holds the rows
  // of the nodes that are expected most often.
  std::span<const float> wanted;
};

// Reads the table. Returns an undefined table if the device or the host has no room for it now. Errors: DataLoss;
// Cancelled if `keep_going`, called now and then, returns false.
absl::StatusOr<FeatureTable> ReadFeatureTable(const data::Graph& graph, const FeatureTableOptions& options,
                                              const std::function<bool()>& keep_going);

}  // namespace permafrost::train
