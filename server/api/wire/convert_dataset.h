// Datasets between the wire and the domain: their imports, samples of a large graph, and plans of what an epoch reads.
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

// Defaults are filled in. Errors: InvalidArgument where the domain cannot hold what the wire says, with a violation for
// every bad field at once. Values out of range are the catalog's to refuse.
absl::StatusOr<ImportRequest> ImportRequestFromWire(const v1::ImportDatasetRequest& wire);

v1::ImportOptions ImportOptionsToWire(const data::ImportOptions& options);

// Defaults are filled in. Errors: InvalidArgument with violations for what the domain cannot hold; ranges are the
// domain's to check.
absl::StatusOr<data::SampleQuery> SampleQueryFromWire(const v1::SampleDatasetRequest& wire);

// An error of data::Sample for `query`, its fields named as on the wire.
absl::Status SampleErrorToWire(const data::SampleQuery& query, const absl::Status& status);

v1::SampleDatasetResponse SampleAnswerToWire(const data::SampleAnswer& answer);

// Defaults are filled in; ranges are the domain's to check. Errors: InvalidArgument with violations for what it cannot
// hold.
absl::StatusOr<data::ReadPlanQuery> ReadPlanQueryFromWire(const v1::PlanDatasetRequest& wire);

// An error of data::PlanDataset: its fields named as on the wire, or with the dataset where it is of that.
absl::Status ReadPlanErrorToWire(const DatasetId& id, const absl::Status& status);

v1::PlanDatasetResponse ReadPlanToWire(const data::ReadPlan& plan);

}  // namespace permafrost::api
