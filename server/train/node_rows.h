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
#include "train/options.h"
#include "train/runner.h"

namespace permafrost::train {

// Whether a job of these options on this dataset has a row of weights for each node.
bool HasNodeRows(const TrainOptions& options, const data::OpenedDataset& dataset);

// What weights with such rows tell in their file of whose the rows are; nothing for others.
std::map<std::string, std::string> NodeNamesMetadata(const TrainOptions& options, const data::OpenedDataset& dataset);

// Whether the metadata of a weights file says that its rows are those of other nodes than this graph's, or in another
// order. False where it says nothing.
bool SaysOtherNodes(const std::map<std::string, std::string>& metadata, const data::Graph& graph);

// As Runner::MapNodeRows.
absl::StatusOr<std::string> MapNodeRows(NodeRowsRequest request, std::string_view prefix);

// Of a file that MapNodeRows made: puts each node's row in its place, and into the rows of other nodes those of
// `tensors`, the model's. Returns what was done, as the end of a line; empty for any other file. Errors:
// InvalidArgument for rows that the file does not have.
absl::StatusOr<std::string> PlaceNodeRows(const nn::TensorSet& tensors, nn::SafetensorsFile& file);

}  // namespace permafrost::train
