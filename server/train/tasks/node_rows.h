// Weights that each node has for itself: rows of node2vec's table, or of learned inputs. They say something of the
// nodes that they were trained on alone, which another dataset may number otherwise. Threads: any, each with a model of
// its own.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/dataset.h"
#include "nn/safetensors.h"
#include "nn/tensor_set.h"
#include "spec/train_options.h"
#include "train/runner.h"

namespace permafrost::train {

// True where a job with these options on this dataset has a row of weights for each node.
bool HasNodeRows(const spec::TrainOptions& options, const data::OpenedDataset& dataset);

// Returns the metadata by which a file of weights with such rows tells whose the rows are. Empty for other weights.
std::map<std::string, std::string> NodeNamesMetadata(const spec::TrainOptions& options,
                                                     const data::OpenedDataset& dataset);

// True where a weights file says in its metadata that its rows belong to other nodes than this graph's, or are in
// another order. False where it says nothing.
bool SaysOtherNodes(const std::map<std::string, std::string>& metadata, const data::Graph& graph);

// As Runner::MapNodeRows.
absl::StatusOr<std::string> MapNodeRows(NodeRowsRequest request, std::string_view prefix);

// Puts each node's row in its place in a file that MapNodeRows made. Nodes without a row in the file get theirs from
// `tensors`, the model's. Returns what was done, as the end of a line; empty for any other file. Errors:
// InvalidArgument for rows that the file does not have.
absl::StatusOr<std::string> PlaceNodeRows(const nn::TensorSet& tensors, nn::SafetensorsFile& file);

}  // namespace permafrost::train
