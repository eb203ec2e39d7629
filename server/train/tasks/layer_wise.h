// Predictions for every node of a large graph from all of its neighbours. Each layer is computed for all nodes before
// the next layer begins, so that nothing is computed twice. Source: Hamilton et al. 2017, section 3.1, as PyG's
// `inference` of its examples. Runs eagerly, outside the graph cache, in chunks of rows; one matrix of [nodes, hidden]
// floats and one of [nodes, 2 * hidden] are in memory at a time, and with residuals or jumping knowledge one or two of
// [nodes, hidden] more. Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/group.h"
#include "data/store/edge_rows.h"
#include "data/store/graph.h"
#include "nn/models/model.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// The features of rows [begin, end) as float32, or as CSR where they are sparse. Errors: DataLoss.
absl::StatusOr<nn::LayerWiseModel::InputRows> ReadFeatureRows(const data::Graph& graph, uint64_t begin, uint64_t end);

// The in-edges of rows [begin, end) over all rows, without the degrees of GCN's normalisation. Errors: DataLoss.
absl::StatusOr<nn::LayerWiseModel::Chunk> ReadInEdges(const data::Graph& graph, uint64_t begin, uint64_t end,
                                                      bool edge_weights,
                                                      data::EdgeInputs edges = data::EdgeInputs::kNone);

// Edges of a chunk at most, and values that they are mapped to, where models read rows of edges. A row of the graph is
// never divided.
inline constexpr uint64_t kChunkEdges = uint64_t{1} << 21;
inline constexpr uint64_t kChunkEdgeValues = uint64_t{1} << 25;

struct LayerWiseOptions {
  int64_t num_layers = 2;
  int64_t hidden_channels = 64;
  bool edge_weights = false;
  data::EdgeInputs edges = data::EdgeInputs::kNone;
  c10::Device device = c10::kCPU;
  // The ranks that share the work, each a part of the rows; all of them get the same predictions. nullptr: there are no
  // others.
  collective::Group* group = nullptr;
};

// Returns the most edges that are in memory at a time. A single row that has more edges is the exception.
uint64_t MostChunkEdges(const data::GraphSummary& graph, const nn::LayerWiseModel& model,
                        const LayerWiseOptions& options);

// Returns [nodes, outputs] on the CPU. `keep_going` is asked before each chunk; false ends with Cancelled.
absl::StatusOr<at::Tensor> PredictLayerWise(const data::Graph& graph, nn::LayerWiseModel& model,
                                            const LayerWiseOptions& options, const std::function<bool()>& keep_going);

}  // namespace permafrost::train
