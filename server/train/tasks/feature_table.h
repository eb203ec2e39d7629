// The dense features of a sampled job where the device gathers the rows of its blocks: they lie in its own memory, in
// pinned memory of the host, or the rows wanted most in the one and the rest in the other. The batch holds only the
// numbers of its rows.
// Threads: SplitFeatures and MostWanted are pure functions; all else belongs to the device's thread.
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
  uint64_t device = 0;  // beside the steps
  // The memory of the device that a step takes besides if a table has two parts.
  uint64_t gathering = 0;
  // Pinned memory of the host; 0: the device does not read it.
  uint64_t host = 0;
};

// How many rows of a table lie on the device and on the host. If both are 0, the host gathers.
struct FeatureSplit {
  int64_t device = 0, host = 0;
  int64_t rows() const { return device + host; }
  bool operator==(const FeatureSplit&) const = default;
};

// Returns where the rows of a table lie. All lie on the device if they fit. Else as many as fit do, and the rest is
// pinned, if the host has room for that. A row's place in a table of two parts takes sizeof(int32_t) on the device.
FeatureSplit SplitFeatures(int64_t rows, int64_t row_bytes, const FeatureMemory& memory);

// Returns how much of the memory of a process may be pinned beside the `taken` bytes: half of all at most, since the
// system cannot take pinned memory back.
uint64_t PinnableBytes(uint64_t process, uint64_t taken);

// Returns for each row whether it is among the `count` that are wanted most; of equally wanted ones the first are.
std::vector<bool> MostWanted(std::span<const float> wanted, int64_t count);

// The tensors, as the device sees them; undefined where the host gathers.
struct FeatureTable {
  at::Tensor rows;  // [n, width] float32
  // Undefined unless the table has two parts: the rows that are not in `rows`; and [nodes + 1] int32, the place of each
  // row in `rows` or, counted on from its end, in `rest`.
  at::Tensor rest, places;
  bool defined() const { return rows.defined(); }
};

// Returns the rows of a block, [numbers, width]. numbers: int64 on the device, each of a node, or the number of nodes
// for a row of zeros.
at::Tensor GatherRows(const FeatureTable& table, const at::Tensor& numbers);

// Returns for each row of a block the mean of its neighbours and then the row itself, [numbers, 2 * width]. offsets,
// neighbors: CSR lists of each row's neighbours, numbered as in `numbers` but int32. Entries beyond the last offset are
// padding. A row without neighbours gets the mean 0. The table has one part.
at::Tensor GatherMeans(const FeatureTable& table, const at::Tensor& numbers, const at::Tensor& offsets,
                       const at::Tensor& neighbors);

// Returns the rows that a table of this graph has: one for each node, and one of zeros for what pads a block.
int64_t FeatureTableRows(const data::GraphSummary& graph);
// Returns the bytes of a row, float32.
int64_t FeatureRowBytes(const data::GraphSummary& graph);

// Returns the line of a job's log that tells where the features lie.
std::string DescribeFeatures(const FeatureSplit& split, int64_t row_bytes);

struct FeatureTableOptions {
  c10::Device device;
  FeatureSplit split;
  // Allocates the part of a table that the host has, if there is one (Backend::AllocatePinned).
  std::function<std::optional<device::PinnedRows>(int64_t rows, int64_t width)> allocate_pinned = nullptr;
  // Tells how much each node is wanted: in a table of two parts the nodes wanted most lie on the device.
  std::span<const float> wanted;
};

// Reads the table. Undefined if the device or the host has no room for it now. Errors: DataLoss; Cancelled if
// `keep_going`, asked now and then, says so.
absl::StatusOr<FeatureTable> ReadFeatureTable(const data::Graph& graph, const FeatureTableOptions& options,
                                              const std::function<bool()>& keep_going);

}  // namespace permafrost::train
