#include "api/wire/convert_sampling.h"

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "api/wire/text.h"
#include "api/wire/wire_enum.h"
#include "api/wire/wire_fields.h"
#include "base/status.h"
#include "base/string_view.h"
#include "permafrost/v1/sampling.pb.h"
#include "spec/sampling.h"

namespace permafrost::api {
namespace {

using SamplerKinds = WireEnum<v1::SamplerKind, spec::kSamplerKindNames>;
using TemporalSamplings = WireEnum<v1::TemporalSampling, spec::kTemporalSamplingNames>;

// wire: v1::NeighborSampling or v1::SampleDatasetRequest::Neighbors. options: with the members replace, weighted,
// disjoint, temporal and sampler. Adds a violation for an unknown value, its field after `prefix` ("neighbors.").
template <class Wire, class Options>
void ReadDraws(const Wire& wire, std::string_view prefix, Options& options, Violations& violations) {
  options.replace = wire.replace();
  options.weighted = wire.weighted();
  options.disjoint = wire.disjoint();
  TemporalSamplings::Read(wire.temporal(), std::string(prefix) + "temporal", options.temporal, violations);
  SamplerKinds::Read(wire.sampler(), std::string(prefix) + "sampler", options.sampler, violations);
}

data::NeighborSamplingOptions NeighborsFromWire(const v1::SampleDatasetRequest::Neighbors& wire, uint64_t seed,
                                                Violations& violations) {
  data::NeighborSamplingOptions options;
  options.fan_outs.assign(wire.fan_outs().begin(), wire.fan_outs().end());
  ReadDraws(wire, "neighbors.", options, violations);
  options.disjoint |= options.temporal != spec::TemporalSampling::kNone;
  options.max_nodes = wire.max_nodes();
  options.max_edges = wire.max_edges();
  options.seed = seed;
  return options;
}

// Returns the wire's name for a field that the domain names: a field of the query ("nodes[3]"), of its kind
// ("fan_outs"), or the kind itself.
std::string WireField(const data::SampleQuery& query, std::string_view field) {
  if (field.starts_with("nodes") || field.starts_with("names") || field == "count") return std::string(field);
  if (field == "walks") return "walk";
  return absl::StrCat(std::holds_alternative<data::WalkOptions>(query.kind) ? "walk." : "neighbors.", AbslView(field));
}

}  // namespace

absl::StatusOr<data::SampleQuery> SampleQueryFromWire(const v1::SampleDatasetRequest& wire) {
  data::SampleQuery query;
  query.nodes.assign(wire.nodes().begin(), wire.nodes().end());
  query.names.assign(wire.names().begin(), wire.names().end());
  if (wire.has_count()) query.count = wire.count();
  Violations violations;
  switch (wire.kind_case()) {
    case v1::SampleDatasetRequest::kNeighbors:
      query.kind = NeighborsFromWire(wire.neighbors(), wire.seed(), violations);
      if (wire.neighbors().has_seed_time()) query.seed_time = wire.neighbors().seed_time();
      PF_RETURN_IF_ERROR(violations.ToStatus());
      return query;
    case v1::SampleDatasetRequest::kWalk: {
      data::WalkOptions walk{.seed = wire.seed()};
      WireReader(wire.walk(), "walk.", violations).Read(walk);
      query.kind = walk;
      return query;
    }
    case v1::SampleDatasetRequest::KIND_NOT_SET:
      break;
  }
  violations.Add("neighbors", "is missing; accepted: neighbors with fan_outs, or a walk");
  return violations.ToStatus();
}

absl::Status SampleErrorToWire(const data::SampleQuery& query, const absl::Status& status) {
  Violations violations;
  for (const FieldViolation& v : GetViolations(status)) {
    violations.Add(WireField(query, v.field), v.description);
  }
  return violations.empty() ? status : violations.ToStatus();
}

v1::SampleDatasetResponse SampleAnswerToWire(const data::SampleAnswer& answer) {
  v1::SampleDatasetResponse wire;
  wire.mutable_nodes()->Add(answer.nodes.begin(), answer.nodes.end());
  wire.mutable_nodes_of_hop()->Add(answer.nodes_of_hop.begin(), answer.nodes_of_hop.end());
  wire.mutable_edges()->Reserve(static_cast<int>(answer.edges.size()));
  for (const data::SampleAnswer::Edge& edge : answer.edges) {
    v1::SampleDatasetResponse::Edge& out = *wire.add_edges();
    out.set_source(edge.source);
    out.set_target(edge.target);
    out.set_hop(static_cast<int32_t>(edge.hop));
    out.set_weight(edge.weight);
    out.set_timestamp(edge.timestamp);
    out.set_seed(edge.seed);
  }
  wire.set_walk_length(answer.walk_length);
  wire.mutable_walks()->Add(answer.walks.begin(), answer.walks.end());
  for (const auto& [row, text] : answer.names) {
    v1::SampleDatasetResponse::Name& name = *wire.add_names();
    name.set_row(row);
    name.set_name(ValidUtf8(text));
  }
  wire.set_seconds(answer.seconds);
  return wire;
}

namespace {

using ReadPlanCases = WireEnum<v1::PlannedReading::Case, data::kReadPlanCaseNames>;

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
  wire.set_what(ReadPlanCases::ToWire(reading.what));
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

absl::StatusOr<data::ReadPlanQuery> ReadPlanQueryFromWire(const v1::PlanDatasetRequest& wire) {
  Violations violations;
  data::ReadPlanQuery query;
  // Below zero stays outside every range.
  query.memory_bytes = static_cast<uint64_t>(wire.memory_bytes());
  if (wire.has_batch_size()) query.batch_size = wire.batch_size();
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

absl::Status ReadPlanErrorToWire(const DatasetId& id, const absl::Status& status) {
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

v1::PlanDatasetResponse ReadPlanToWire(const data::ReadPlan& plan) {
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
