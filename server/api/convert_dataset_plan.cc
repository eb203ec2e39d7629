#include "api/convert_dataset_plan.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "api/convert_neighbors.h"
#include "api/wire_enum.h"
#include "base/status.h"

namespace permafrost::api {
namespace {

using PlanCases = WireEnum<v1::PlannedReading::Case, data::kPlanCaseNames>;

v1::DiskRates RatesToWire(const DiskRates& rates) {
  v1::DiskRates wire;
  wire.set_depth(rates.depth);
  wire.set_seconds_per_read(rates.seconds_per_read);
  wire.set_seconds_per_byte(rates.seconds_per_byte);
  wire.set_sequential_bytes_per_second(rates.sequential_bytes_per_second);
  wire.set_how(rates.how);
  return wire;
}

v1::PlannedReading ReadingToWire(const data::PlannedReading& reading) {
  v1::PlannedReading wire;
  wire.set_what(PlanCases::ToWire(reading.what));
  wire.set_memory_bytes(static_cast<int64_t>(reading.memory_bytes));
  wire.set_row_bytes(static_cast<int64_t>(reading.row_bytes));
  wire.set_pages_per_row(reading.pages_per_row);
  wire.set_held_rows(static_cast<int64_t>(reading.held_rows));
  wire.set_most_memory_bytes(static_cast<int64_t>(reading.most_memory));
  wire.set_hit_rate(reading.hit_rate);
  wire.set_reads(reading.reads);
  wire.set_bytes(reading.bytes);
  wire.set_missed_row_bytes(reading.missed_bytes);
  wire.set_seconds(reading.seconds);
  wire.set_fill_seconds(reading.fill_seconds);
  wire.set_packed_seconds(reading.packed_seconds);
  return wire;
}

}  // namespace

absl::StatusOr<data::DatasetPlanQuery> DatasetPlanQueryFromWire(const v1::PlanDatasetRequest& wire) {
  Violations violations;
  data::DatasetPlanQuery query;
  // Below zero stays outside every range.
  query.memory_bytes = static_cast<uint64_t>(wire.memory_bytes());
  if (wire.batch_size() != 0) query.batch_size = wire.batch_size();
  query.sampling.fan_outs.assign(wire.neighbors().fan_outs().begin(), wire.neighbors().fan_outs().end());
  ReadDraws(wire.neighbors(), "neighbors.", query.sampling, violations);
  query.sampling.disjoint |= query.sampling.temporal != spec::TemporalSampling::kNone;
  query.sampling.seed = wire.seed();
  if (wire.neighbors().has_seed_time()) {
    violations.Add("neighbors.seed_time",
                   "is given for a plan, which is of seeds that see every edge; accepted: without");
  }
  for (const auto& [field, bound] : {std::pair("neighbors.max_nodes", wire.neighbors().max_nodes()),
                                     std::pair("neighbors.max_edges", wire.neighbors().max_edges())}) {
    if (bound != 0) violations.Add(field, "is given for a plan, which expects every draw; accepted: without");
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return query;
}

absl::Status DatasetPlanErrorToWire(const DatasetId& id, const absl::Status& status) {
  Violations violations;
  for (const FieldViolation& v : GetViolations(status)) {
    const bool of_sampling = v.field == "fan_outs" || v.field == "weighted" || v.field == "replace" ||
                             v.field == "disjoint" || v.field == "temporal" || v.field == "sampler";
    violations.Add(of_sampling ? absl::StrCat("neighbors.", v.field) : v.field, v.description);
  }
  if (!violations.empty()) return violations.ToStatus();
  if (!absl::IsFailedPrecondition(status)) return status;
  return WithReason(absl::FailedPreconditionError(absl::StrCat("dataset ", id.value(), " ", status.message())),
                    GetReason(status).reason, {{"dataset", id.value()}});
}

v1::PlanDatasetResponse DatasetPlanToWire(const data::DatasetPlan& plan) {
  v1::PlanDatasetResponse wire;
  wire.set_num_nodes(static_cast<int64_t>(plan.nodes));
  wire.set_num_train_nodes(static_cast<int64_t>(plan.training_nodes));
  wire.set_num_batches(plan.batches);
  wire.set_sampled_batches(plan.sampled_batches);
  wire.set_mean_rows(plan.mean_rows);
  wire.set_largest_rows(plan.largest_rows);
  wire.set_rows_per_epoch(plan.rows_an_epoch);
  wire.set_distinct_rows(plan.distinct_rows);
  wire.set_edge_bytes(static_cast<int64_t>(plan.edge_bytes));
  wire.set_edge_feature_bytes(static_cast<int64_t>(plan.edge_feature_bytes));
  *wire.mutable_disk() = RatesToWire(plan.disk);
  for (const data::PlannedReading& reading : plan.readings) *wire.add_readings() = ReadingToWire(reading);
  wire.set_seconds(plan.seconds);
  return wire;
}

}  // namespace permafrost::api
