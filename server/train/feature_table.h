// Copies a large graph's dense features to the device, where steps gather the rows of sampled blocks.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "data/store/graph.h"

namespace permafrost::train {

// Returns the bytes of a table: a row of float32 for each node, and one of zeros for the rows that pad a block.
uint64_t FeatureTableBytes(const data::GraphSummary& graph);

// Returns [nodes + 1, width] float32 on `device`; undefined where the device has no room for it now. Errors: DataLoss;
// Cancelled where `keep_going`, asked now and then, says so.
absl::StatusOr<at::Tensor> ReadFeatureTable(const data::Graph& graph, c10::Device device,
                                            const std::function<bool()>& keep_going);

}  // namespace permafrost::train
