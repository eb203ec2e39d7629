// What a job begins with in place of drawn weights, and which of its weights are not trained.
// Threads: any, each with a model of its own.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/dataset.h"
#include "nn/tensor_set.h"
#include "train/options.h"

namespace permafrost::train {

// Copies tensors of `file`, a safetensors file, into the model's. Returns what was taken and left, one line. Errors:
// InvalidArgument: not a safetensors file; strict: the first tensor that differs, and how many do; by name: none fits.
// Nothing is copied then.
absl::StatusOr<std::string> TakeWeights(std::string_view file, const InitialWeights& how, nn::TensorSet& tensors);

// Copies all tensors of `file`, which are all the model's by name and shape. source: whose they are, for errors.
// Errors: InvalidArgument: not a safetensors file; the first tensor that differs, and how many do.
absl::Status TakeAllWeights(std::string_view file, std::string_view source, nn::TensorSet& tensors);

// Ok if TakeWeights has no error for a job of these options, which are compatible; else InvalidArgument with a
// violation of PREFIXinit_from.
absl::Status CheckInitialWeights(const TrainOptions& options, const data::ImportedSummary& summary,
                                 std::string_view file, std::string_view prefix);

// TensorSet::Fix for options.fixed_parameters. Errors: InvalidArgument with a violation of PREFIXfixed_parameters.
absl::Status FixParameters(const TrainOptions& options, std::string_view prefix, nn::TensorSet& tensors);
// Ok if it has no error for a job of these options, which are compatible.
absl::Status CheckFixedParameters(const TrainOptions& options, const data::ImportedSummary& summary,
                                  std::string_view prefix);

}  // namespace permafrost::train
