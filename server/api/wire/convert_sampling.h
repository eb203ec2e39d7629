// Samples of a large graph, and plans of what an epoch reads of a dataset, between the wire and the domain.
// Threads: pure functions.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "data/rows/read_plan.h"
#include "data/sampling/sample_query.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

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
