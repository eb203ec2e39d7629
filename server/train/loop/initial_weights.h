// Initialises a job's weights from a file, and fixes the weights that are not trained.
// Threads: any, each with its own model.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/dataset.h"
#include "data/store/graph.h"
#include "nn/tensor_set.h"
#include "spec/train_options.h"
#include "train/runner.h"

namespace permafrost::train {

// Copies tensors of `file`, a safetensors file, into the model. Returns one line about the tensors that it copied and
// those that it left out.
// Compares the file's categories with `own`, the categories that the model reads, and moves each row of weights to
// the category with the same value. If the file lacks a value that the model has, the model's row for it stays as it
// is. The returned line counts these rows. If the categories of the file or of the model are unknown, rows are copied
// in the file's order.
// Errors: InvalidArgument if `file` is not a safetensors file. Without how.by_name, InvalidArgument if tensors of the
// file and the model differ. The error has the name of the first differing tensor, and the number of differing
// tensors. With how.by_name, InvalidArgument if no tensor fits. After an error, the model is unchanged.
absl::StatusOr<std::string> TakeWeights(std::string_view file, const spec::InitialWeights& how, nn::TensorSet& tensors,
                                        const std::optional<data::Categories>& own = std::nullopt);

// Copies all tensors of `file`, which must match the model's tensors by name and shape. A model's tensor named in
// `zero_rows` has one more row than in the file, and this last row becomes zeros. `source` names the owner of the
// weights, for errors.
// Errors: InvalidArgument if `file` is not a safetensors file, or if tensors differ. The error then has the name of
// the first differing tensor, and the number of differing tensors.
absl::Status TakeAllWeights(std::string_view file, std::string_view source, nn::TensorSet& tensors,
                            const std::vector<std::string>& zero_rows = {});

// Reads from a file of weights the categories on which they were trained; nullopt if an older version wrote it.
// Errors: InvalidArgument if the categories in the file are malformed.
absl::StatusOr<std::optional<data::Categories>> CategoriesOfWeights(std::string_view file, std::string_view source);

// Checks that TakeWeights succeeds for a job with these compatible options. Refuses weights from another dataset if
// the categories of either dataset are unknown.
// Errors: InvalidArgument with a violation of PREFIXinit_from.
absl::Status CheckInitialWeights(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                 std::string_view file, std::string_view prefix, const WeightsTarget& target = {});

// Calls TensorSet::Fix for options.fixed_parameters.
// Errors: InvalidArgument with a violation of PREFIXfixed_parameters.
absl::Status FixParameters(const spec::TrainOptions& options, std::string_view prefix, nn::TensorSet& tensors);
// Checks that FixParameters succeeds for a job with these compatible options.
absl::Status CheckFixedParameters(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                  std::string_view prefix);

// The rest of this file handles weights of single nodes: rows of node2vec's table, or of learned inputs. Each row
// belongs to the node that it was trained for, and another dataset may number its nodes differently.

// Returns true if a job with these options on this dataset has a row of weights for each node.
bool HasNodeRows(const spec::TrainOptions& options, const data::OpenedDataset& dataset);

// Returns metadata for a file of weights that identify the nodes of its rows. They are empty if the weights have no
// rows of single nodes.
std::map<std::string, std::string> NodeNamesMetadata(const spec::TrainOptions& options,
                                                     const data::OpenedDataset& dataset);

// Returns true if the metadata of a weights file say that its rows belong to nodes other than this graph's, or are in
// another order. Returns false if the metadata say nothing about nodes.
bool SaysOtherNodes(const std::map<std::string, std::string>& metadata, const data::Graph& graph);

// Implements Runner::MapNodeRows, with its contract.
absl::StatusOr<std::string> MapNodeRows(NodeRowsRequest request, std::string_view prefix);

}  // namespace permafrost::train
