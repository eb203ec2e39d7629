// Converts datasets between the wire and the domain: imports, samples of a large graph, and read plans.
// Threads: pure functions.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "data/catalog/catalog.h"
#include "data/rows/read_plan.h"
#include "data/sampling/sample_query.h"
#include "data/source/import_options.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

v1::Dataset DatasetToWire(const data::Dataset& dataset);

struct ImportRequest {
  DatasetId id;
  data::ImportOptions options;
};

// Fills in defaults. Errors: if the domain cannot represent the request, InvalidArgument with a violation for every
// bad field. Values out of range pass; the catalog refuses them.
absl::StatusOr<ImportRequest> ImportRequestFromWire(const v1::ImportDatasetRequest& wire);

v1::ImportOptions ImportOptionsToWire(const data::ImportOptions& options);

// Fills in defaults. Errors: InvalidArgument with a violation for each value that the domain cannot represent. The
// domain checks ranges.
absl::StatusOr<data::SampleQuery> SampleQueryFromWire(const v1::SampleDatasetRequest& wire);

// Converts an error of data::Sample: replaces the names of the fields of `query` by the wire's names.
absl::Status SampleErrorToWire(const data::SampleQuery& query, const absl::Status& status);

v1::SampleDatasetResponse SampleAnswerToWire(const data::SampleAnswer& answer);

// Fills in defaults. Errors: InvalidArgument with a violation for each value that the domain cannot represent. The
// domain checks ranges.
absl::StatusOr<data::ReadPlanQuery> ReadPlanQueryFromWire(const v1::PlanDatasetRequest& wire);

// Converts an error of data::PlanDataset. Replaces the names of the query's fields by the wire's names. Adds the name
// of the dataset to an error about the dataset.
absl::Status ReadPlanErrorToWire(const DatasetId& id, const absl::Status& status);

v1::PlanDatasetResponse ReadPlanToWire(const data::ReadPlan& plan);

}  // namespace permafrost::api
