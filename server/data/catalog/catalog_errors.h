// Errors of the catalog that carry a reason. Threads: pure.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "data/catalog/catalog.h"

namespace permafrost::data {

// NotFound, reason DATASET_NOT_FOUND.
absl::Status NotFoundError(const DatasetId& id);
// AlreadyExists, reason DATASET_ALREADY_EXISTS.
absl::Status AlreadyExistsError(const DatasetId& id, std::string_view why);
// FailedPrecondition, reason DATASET_NOT_READY, with the state it is in and its error.
absl::Status NotReadyError(const Dataset& dataset);

// Aborted, reason ETAG_MISMATCH.
absl::Status EtagError(const Dataset& dataset, std::string_view wanted);

}  // namespace permafrost::data
