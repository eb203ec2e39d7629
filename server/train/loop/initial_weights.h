// Gives a job weights to begin with in place of drawn ones, and fixes those of its weights that are not trained.
// Threads: any, each with a model of its own.
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

// Copies tensors of `file`, a safetensors file, into the model's. Returns what was taken and left, one line. Errors:
// InvalidArgument: not a safetensors file; strict: the first tensor that differs, and how many do; by name: none fits.
// Nothing is copied then.
// The file's categories are compared with `own`, the categories that the model reads: a row of weights goes where its
// value is. Rows for values that the file does not have stay as they are, and the line counts them. Where one of the
// two is not known, rows are taken as they stand.
absl::StatusOr<std::string> TakeWeights(std::string_view file, const spec::InitialWeights& how, nn::TensorSet& tensors,
                                        const std::optional<data::Categories>& own = std::nullopt);

// Copies all tensors of `file`, which are all the model's by name and shape, but that those of zero_rows have one row
// more in the model, which becomes zeros. source: whose they are, for errors.
// Errors: InvalidArgument: not a safetensors file; the first tensor that differs, and how many do.
absl::Status TakeAllWeights(std::string_view file, std::string_view source, nn::TensorSet& tensors,
                            const std::vector<std::string>& zero_rows = {});

// Reads from a file of weights which categories they were trained on; nullopt: an older version wrote it. Errors:
// InvalidArgument where that does not add up.
absl::StatusOr<std::optional<data::Categories>> CategoriesOfWeights(std::string_view file, std::string_view source);

// Ok if TakeWeights has no error for a job of these options, which are compatible; else InvalidArgument with a
// violation of PREFIXinit_from. Refuses weights of another dataset whose categories, or those of this one, are not
// known.
absl::Status CheckInitialWeights(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                 std::string_view file, std::string_view prefix, const WeightsTarget& target = {});

// TensorSet::Fix for options.fixed_parameters. Errors: InvalidArgument with a violation of PREFIXfixed_parameters.
absl::Status FixParameters(const spec::TrainOptions& options, std::string_view prefix, nn::TensorSet& tensors);
// Ok if it has no error for a job of these options, which are compatible.
absl::Status CheckFixedParameters(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                  std::string_view prefix);

// Each node may have weights for itself: rows of node2vec's table, or of learned inputs. They say something of the
// nodes that they were trained on alone, which another dataset may number otherwise.

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

}  // namespace permafrost::train
