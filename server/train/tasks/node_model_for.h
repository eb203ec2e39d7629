// Tells which node-level model a graph needs, whether this machine can hold it, and what of the graph every such job
// reads. Threads: pure functions, but for ReadSplits, which reads the store.
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

// The model of a job on one large graph. For a program hidden_channels equals num_outputs; if it predicts links, both
// are the columns that it returns, where these are known.
struct JobNodeModel : nn::NodeModelOptions {
  std::optional<ForwardCost> program;  // what a program costs; nullopt: one of our own
};
// Errors: InvalidArgument with violations under `prefix` ("spec."); those of reading a program's archive.
absl::StatusOr<JobNodeModel> NodeModelFor(const spec::TrainOptions& options, const data::GraphSummary& stored,
                                          const MemoryLimits& limits, std::string_view prefix);

// Bytes of this process that such a job takes at its worst moment, beside the features that it reads.
uint64_t NodeJobBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                      const MemoryLimits& limits);

// Returns the options as a job's task uses them: a program tells what it reads, and how wide its rows are.
spec::TrainOptions WithProgram(const spec::TrainOptions& options, const JobNodeModel& model, const MadeNodeModel& made);

// Returns whether this process has room for batches of training and of evaluation at once.
bool HasRoomForBothModes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                         const MemoryLimits& limits);

// Returns the bytes of the device that such a job takes at its worst moment.
uint64_t NodeDeviceBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                         const MemoryLimits& limits);

// Returns the bytes of the device that a step takes besides if it gathers its features from a table of two parts
// (feature_table.h).
uint64_t GatheringBytes(const spec::TrainOptions& options, const data::GraphSummary& graph);

// Returns the additional bytes of the device for a step that makes its first layer's means from a table on the device.
// 0 if that layer begins with no means.
uint64_t MeansBytes(const spec::TrainOptions& options, const data::GraphSummary& graph);

// Returns how the batches of a mode are sampled; no fan-outs: each is the whole graph. The last hop stands apart where
// the model's first layer begins with means that can be made while a batch is gathered.
data::NeighborSamplingOptions SamplingOf(const spec::TrainOptions& options, Mode mode, const data::GraphSummary& graph);

// Returns whether the graph has edge weights and the model may read them: GCN weighs messages by them, as PyG's
// GCNConv, and programs may.
bool UsesEdgeWeights(const spec::TrainOptions& options, const data::Graph& graph);

// Bytes that a layer-wise evaluation takes (layer_wise.h).
double LayerWiseBytes(const spec::TrainOptions& options, const data::GraphSummary& graph, int64_t in_channels,
                      int64_t outputs);

// Returns what a model reads of edges beside where they lead.
data::EdgeInputs EdgeInputsOf(const spec::ModelOptions& model, const data::GraphSummary& graph);

// The nodes of each split, by Split. DataLoss.
absl::StatusOr<std::array<std::vector<data::NodeId>, 3>> ReadSplits(const data::Graph& graph);

// [nodes, targets] of some nodes, all below the graph's number. DataLoss.
absl::StatusOr<at::Tensor> ReadLabels(const data::Graph& graph, std::span<const data::NodeId> nodes);

}  // namespace permafrost::train
