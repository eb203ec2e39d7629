// Datasets and their imports between the wire and the domain.
// Threads: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "base/id.h"
#include "data/catalog/catalog.h"
#include "data/source/import_options.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

v1::Dataset DatasetToWire(const data::Dataset& dataset);

struct ImportRequest {
  DatasetId id;
  data::ImportOptions options;
};

// Defaults are filled in. Errors: InvalidArgument where the domain cannot hold what the wire says, with a violation for
// every bad field at once. Values out of range are the catalog's to refuse.
absl::StatusOr<ImportRequest> ImportRequestFromWire(const v1::ImportDatasetRequest& wire);

v1::ImportOptions ImportOptionsToWire(const data::ImportOptions& options);

}  // namespace permafrost::api
