// Predicts every node of a large graph from all of its neighbours. Each layer is computed for all nodes before the
// next layer begins, so that nothing is computed twice. Source: Hamilton et al. 2017, section 3.1; the `inference`
// methods of PyG's examples. Runs eagerly, outside the graph cache, in chunks of rows.
// Memory: a matrix [nodes, hidden] and a matrix [nodes, 2 * hidden] of floats at a time. Residuals or jumping
// knowledge add one or two matrices [nodes, hidden].
// Threads: the device thread.
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

// Reads the features of rows [begin, end) as float32, or as CSR if they are sparse. Errors: DataLoss.
absl::StatusOr<nn::LayerWiseModel::InputRows> ReadFeatureRows(const data::Graph& graph, uint64_t begin, uint64_t end);

// Reads the in-edges of rows [begin, end). Their sources may lie outside this range. Leaves the degrees for GCN's
// normalisation to the caller. Errors: DataLoss.
absl::StatusOr<nn::LayerWiseModel::Chunk> ReadInEdges(const data::Graph& graph, uint64_t begin, uint64_t end,
                                                      bool edge_weights,
                                                      data::EdgeInputs edges = data::EdgeInputs::kNone);

// The most edges of a chunk. The edges of one node are never divided, so a chunk of one node may exceed this limit
// and kChunkEdgeValues.
inline constexpr uint64_t kChunkEdges = uint64_t{1} << 21;
// For models that read edge features: the most values that a layer computes from the edges of a chunk.
inline constexpr uint64_t kChunkEdgeValues = uint64_t{1} << 25;

struct LayerWiseOptions {
  int64_t num_layers = 2;
  int64_t hidden_channels = 64;
  bool edge_weights = false;
  data::EdgeInputs edges = data::EdgeInputs::kNone;
  c10::Device device = c10::kCPU;
  // The ranks that divide the rows among themselves. Every rank gets all predictions. Null if there are no other
  // ranks.
  collective::Group* group = nullptr;
};

// Returns the most edges that are in memory at a time, unless a single node has more.
uint64_t MostChunkEdges(const data::GraphSummary& graph, const nn::LayerWiseModel& model,
                        const LayerWiseOptions& options);

// Returns the predictions, [nodes, outputs] on the CPU. Errors: DataLoss; Cancelled if `keep_going`, called before
// each chunk, returns false.
absl::StatusOr<at::Tensor> PredictLayerWise(const data::Graph& graph, nn::LayerWiseModel& model,
                                            const LayerWiseOptions& options, const std::function<bool()>& keep_going);

}  // namespace permafrost::train
