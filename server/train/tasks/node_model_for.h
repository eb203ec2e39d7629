// Determines the node-level model for a graph, the memory that a job with this model takes, and what the job reads of
// the graph.
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
// links, both are the number of columns that it returns, or the job's hidden_channels if that number is unknown.
struct JobNodeModel : nn::NodeModelOptions {
  std::optional<ForwardCost> program;  // the cost of a program; nullopt for our own models
};
// Errors: InvalidArgument with violations under `prefix` ("spec."); those of reading a program's archive.
absl::StatusOr<JobNodeModel> NodeModelFor(const spec::TrainOptions& options, const data::GraphSummary& stored,
                                          const MemoryLimits& limits, std::string_view prefix);

// Returns the peak memory of a job on one large graph in this process, in bytes, without the features that the job
// reads.
uint64_t NodeJobBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                      const MemoryLimits& limits);

// Returns the options with which a job's task works. For a program, they say which edge inputs the program reads and
// how wide its rows are.
spec::TrainOptions WithProgram(const spec::TrainOptions& options, const JobNodeModel& model, const MadeNodeModel& made);

// Returns whether this process has memory for training batches and evaluation batches at the same time.
bool HasRoomForBothModes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                         const MemoryLimits& limits);

// Returns the peak device memory of a job on one large graph, in bytes.
uint64_t NodeDeviceBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                         const MemoryLimits& limits);

// Returns the additional device memory, in bytes, of a step that gathers its features from a table of two parts
// (feature_table.h).
uint64_t GatheringBytes(const spec::TrainOptions& options, const data::GraphSummary& graph);

// Returns the additional device memory, in bytes, of a step that computes the means of its first layer from a table
// on the device. The result is 0 if the first layer does not begin with means.
uint64_t MeansBytes(const spec::TrainOptions& options, const data::GraphSummary& graph);

// Returns how the batches of a mode are sampled. Without fan-outs, each batch is the whole graph. If the model's
// first layer begins with means of neighbours that can be computed while a batch is gathered, the last hop is kept
// apart from the other hops.
data::NeighborSamplingOptions SamplingOf(const spec::TrainOptions& options, Mode mode, const data::GraphSummary& graph);

// Returns whether the graph has edge weights that the model may read. GCN weighs messages by them, as PyG's GCNConv
// does. A program may read them, too.
bool UsesEdgeWeights(const spec::TrainOptions& options, const data::Graph& graph);

// Returns the bytes that a layer-wise evaluation takes (layer_wise.h).
double LayerWiseBytes(const spec::TrainOptions& options, const data::GraphSummary& graph, int64_t in_channels,
                      int64_t outputs);

// Returns what a model reads of edges besides their source and target.
data::EdgeInputs EdgeInputsOf(const spec::ModelOptions& model, const data::GraphSummary& graph);

// Returns the nodes of each split, by Split. Errors: DataLoss.
absl::StatusOr<std::array<std::vector<data::NodeId>, 3>> ReadSplits(const data::Graph& graph);

// Returns the labels of these nodes, [nodes, targets]. A missing label is NaN. Errors: DataLoss.
absl::StatusOr<at::Tensor> ReadLabels(const data::Graph& graph, std::span<const data::NodeId> nodes);

}  // namespace permafrost::train
