// Tells which node-level model a graph needs, whether this machine can hold it, and what such jobs read of the graph.
// Threads: pure functions, except that ReadSplits and ReadLabels read the store.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/step.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/store/edge_rows.h"
#include "data/store/graph.h"
#include "nn/models/model.h"
#include "spec/train_options.h"
#include "train/planning/run_size.h"
#include "train/tasks/program_model.h"
#include "train/tasks/program_trials.h"

namespace permafrost::train {

// The model of a job on one large graph. For a program, hidden_channels equals num_outputs. If the program predicts
// links, both are the number of columns that it returns, if that is known.
struct JobNodeModel : nn::NodeModelOptions {
  std::optional<ForwardCost> program;  // the cost of a program; nullopt for our own models
};
// Errors: InvalidArgument with violations under `prefix` ("spec."); those of reading a program's archive.
absl::StatusOr<JobNodeModel> NodeModelFor(const spec::TrainOptions& options, const data::GraphSummary& stored,
                                          const MemoryLimits& limits, std::string_view prefix);

// Returns the bytes of this process that a job on one large graph takes at its worst moment, beside the features that
// it reads.
uint64_t NodeJobBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                      const MemoryLimits& limits);

// Returns the options as a job's task uses them. For a program, they say what it reads of edges and how wide its rows
// are.
spec::TrainOptions WithProgram(const spec::TrainOptions& options, const JobNodeModel& model, const MadeNodeModel& made);

// Returns whether this process has room for batches of training and of evaluation at once.
bool HasRoomForBothModes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                         const MemoryLimits& limits);

// Returns the bytes of the device that a job on one large graph takes at its worst moment.
uint64_t NodeDeviceBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                         const MemoryLimits& limits);

// Returns the additional bytes of the device for a step that gathers its features from a table of two parts
// (feature_table.h).
uint64_t GatheringBytes(const spec::TrainOptions& options, const data::GraphSummary& graph);

// Returns the additional bytes of the device for a step that makes its first layer's means from a table on the device.
// The result is 0 if that layer does not begin with means.
uint64_t MeansBytes(const spec::TrainOptions& options, const data::GraphSummary& graph);

// Returns how the batches of a mode are sampled. Without fan-outs each batch is the whole graph. The last hop stands
// apart if the model's first layer begins with means that can be made while a batch is gathered.
data::NeighborSamplingOptions SamplingOf(const spec::TrainOptions& options, Mode mode, const data::GraphSummary& graph);

// Returns whether the graph has edge weights and the model may read them. GCN weighs messages by them, as PyG's
// GCNConv does, and programs may.
bool UsesEdgeWeights(const spec::TrainOptions& options, const data::Graph& graph);

// Returns the bytes that a layer-wise evaluation takes (layer_wise.h).
double LayerWiseBytes(const spec::TrainOptions& options, const data::GraphSummary& graph, int64_t in_channels,
                      int64_t outputs);

// Returns what a model reads of edges besides their ends.
data::EdgeInputs EdgeInputsOf(const spec::ModelOptions& model, const data::GraphSummary& graph);

// Returns the nodes of each split, by Split. Errors: DataLoss.
absl::StatusOr<std::array<std::vector<data::NodeId>, 3>> ReadSplits(const data::Graph& graph);

// Returns the labels of these nodes of the graph, [nodes, targets]; NaN if it has none. Errors: DataLoss.
absl::StatusOr<at::Tensor> ReadLabels(const data::Graph& graph, std::span<const data::NodeId> nodes);

}  // namespace permafrost::train
