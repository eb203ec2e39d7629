#include "api/wire/convert_dataset.h"

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "api/wire/resource_name.h"
#include "api/wire/wire_fields.h"
#include "api/wire/wire_values.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/catalog/catalog.h"
#include "permafrost/v1/sampling.pb.h"
#include "spec/sampling.h"

namespace permafrost::api {
namespace {

using DatasetStates = WireEnum<v1::Dataset::State, data::kDatasetStateNames>;
using Orders = WireEnum<v1::ImportOptions::Order, data::kNodeOrderNames>;
using Directions = WireEnum<v1::EdgeDirections, data::kEdgeDirectionsNames>;
using DataTypes = WireEnum<v1::FeatureSummary::DataType, data::kDataTypeNames>;

void FeaturesToWire(const data::FeatureSummary& features, v1::FeatureSummary& wire) {
  wire.set_data_type(DataTypes::ToWire(features.type));
  wire.set_width(static_cast<int32_t>(features.width));
  wire.mutable_min()->Add(features.min.begin(), features.min.end());
  wire.mutable_max()->Add(features.max.begin(), features.max.end());
  wire.set_converted_from(DataTypes::ToWire(features.converted_from));
  wire.set_largest_error(features.largest_error);
  wire.set_rms_error(features.rms_error);
  for (const data::CategorySummary& categories : features.categories) {
    v1::FeatureSummary::Categories& each = *wire.add_categories();
    each.set_name(categories.name);
    each.set_column(static_cast<int32_t>(categories.column));
    each.set_columns(static_cast<int32_t>(categories.columns));
    each.set_num_values(categories.values);
    each.mutable_first_values()->Add(categories.first_values.begin(), categories.first_values.end());
  }
}

void SizesToWire(const data::SizeStatistics& sizes, v1::SizeStatistics& wire) {
  wire.set_num_graphs(sizes.graphs);
  wire.set_num_nodes(sizes.nodes);
  wire.set_num_edges(sizes.edges);
  wire.set_mean_nodes(sizes.mean_nodes);
  wire.set_std_nodes(sizes.std_nodes);
  wire.set_mean_edges(sizes.mean_edges);
  wire.set_std_edges(sizes.std_edges);
  wire.set_max_nodes(sizes.max_nodes);
  wire.set_max_edges(sizes.max_edges);
  wire.set_node_edge_correlation(sizes.node_edge_correlation);
}

void SummaryToWire(const data::GraphSetSummary& summary, v1::Dataset& dataset) {
  v1::GraphSetSummary& wire = *dataset.mutable_graph_set();
  const auto split = [&summary](data::Split s) { return summary.splits[static_cast<size_t>(s)]; };
  SizesToWire(summary.all, *wire.mutable_all());
  SizesToWire(split(data::Split::kTrain), *wire.mutable_train());
  SizesToWire(split(data::Split::kValid), *wire.mutable_valid());
  SizesToWire(split(data::Split::kTest), *wire.mutable_test());
  FeaturesToWire(summary.node_features, *wire.mutable_node_features());
  FeaturesToWire(summary.edge_features, *wire.mutable_edge_features());
  wire.set_position_columns(static_cast<int32_t>(summary.position_columns));
  wire.set_num_targets(static_cast<int32_t>(summary.num_targets));
  wire.set_num_missing_labels(summary.num_missing_labels);
  wire.set_store_bytes(static_cast<int64_t>(summary.store_bytes));
  wire.set_split(ValidUtf8(summary.split_name));
  wire.set_inverse_edges_added(summary.inverse_edges_added);
  wire.set_directions(Directions::ToWire(summary.directions));
  if (summary.labels_known) {
    wire.set_min_label(summary.min_label);
    wire.set_max_label(summary.max_label);
    wire.set_integer_labels(summary.integer_labels);
  }
  wire.mutable_class_values()->Add(summary.class_values.begin(), summary.class_values.end());
  wire.set_node_feature_origin(summary.node_feature_origin);
  wire.set_edge_feature_origin(summary.edge_feature_origin);
  wire.set_num_duplicate_edges(summary.duplicate_edges);
}

void LinksToWire(const data::GivenLinksSummary& links, v1::GivenLinks& wire) {
  const data::GivenLinksSummary::Part& valid = links.of(data::Split::kValid);
  const data::GivenLinksSummary::Part& test = links.of(data::Split::kTest);
  wire.set_num_train(links.of(data::Split::kTrain).links);
  wire.set_num_valid(valid.links);
  wire.set_num_test(test.links);
  wire.set_valid_negatives(valid.negatives);
  wire.set_valid_negative_pairs(valid.pairs);
  wire.set_test_negatives(test.negatives);
  wire.set_test_negative_pairs(test.pairs);
}

void SummaryToWire(const data::GraphSummary& summary, v1::Dataset& dataset) {
  v1::GraphSummary& wire = *dataset.mutable_graph();
  const auto split = [&summary](data::Split s) { return summary.split_nodes[static_cast<size_t>(s)]; };
  wire.set_num_nodes(summary.nodes);
  wire.set_num_edges(summary.edges);
  wire.set_symmetric(summary.symmetric);
  wire.set_inverse_edges_added(summary.inverse_edges_added);
  wire.set_directions(Directions::ToWire(summary.directions));
  wire.set_weighted(summary.weighted);
  wire.set_timestamped(summary.timestamped);
  wire.set_node_times(summary.node_times);
  wire.set_named(summary.named);
  wire.set_order(Orders::ToWire(summary.order));
  wire.set_num_self_loops(summary.self_loops);
  wire.set_num_isolated_nodes(summary.isolated_nodes);
  wire.set_max_degree(summary.max_degree);
  wire.set_num_duplicate_edges(summary.duplicate_edges);
  wire.set_num_equal_edges(summary.equal_edges);
  FeaturesToWire(summary.node_features, *wire.mutable_node_features());
  FeaturesToWire(summary.edge_features, *wire.mutable_edge_features());
  wire.set_node_feature_nonzeros(summary.node_feature_nonzeros);
  wire.set_position_columns(static_cast<int32_t>(summary.position_columns));
  wire.set_num_targets(static_cast<int32_t>(summary.num_targets));
  wire.set_num_missing_labels(summary.num_missing_labels);
  wire.set_min_label(summary.min_label);
  wire.set_max_label(summary.max_label);
  wire.set_integer_labels(summary.integer_labels);
  wire.set_num_train_nodes(split(data::Split::kTrain));
  wire.set_num_valid_nodes(split(data::Split::kValid));
  wire.set_num_test_nodes(split(data::Split::kTest));
  wire.set_split(ValidUtf8(summary.split_name));
  if (summary.links.given) LinksToWire(summary.links, *wire.mutable_links());
  wire.set_adjacency_bytes(static_cast<int64_t>(summary.adjacency_bytes));
  wire.set_store_bytes(static_cast<int64_t>(summary.store_bytes));
}

}  // namespace

v1::Dataset DatasetToWire(const data::Dataset& dataset) {
  v1::Dataset wire;
  wire.set_name(FormatDatasetName(dataset.id));
  wire.set_state(DatasetStates::ToWire(dataset.state));
  SetTime(dataset.create_time, [&wire] { return wire.mutable_create_time(); });
  // A dataset that was only validated has neither uid nor etag.
  wire.set_uid(ValidUtf8(dataset.uid));
  if (!dataset.uid.empty()) wire.set_etag(data::EtagOf(dataset));
  *wire.mutable_import_options() = ImportOptionsToWire(dataset.options);
  if (dataset.state == data::DatasetState::kImporting) {
    v1::ImportProgress& progress = *wire.mutable_import_progress();
    progress.set_current_file(ValidUtf8(dataset.progress.current_file));
    progress.set_bytes_read(dataset.progress.bytes_read);
    progress.set_bytes_total(dataset.progress.bytes_total);
  }
  if (dataset.content_checksum != 0) wire.set_content_checksum(HashHex(dataset.content_checksum));
  wire.set_error(ValidUtf8(dataset.error));
  wire.set_last_error(ValidUtf8(dataset.last_error));
  SetTime(dataset.retry_time, [&wire] { return wire.mutable_retry_time(); });
  if (dataset.summary) {
    std::visit(
        [&wire](const auto& summary) {
          SummaryToWire(summary, wire);
          for (const std::string& note : summary.notes) wire.add_import_notes(ValidUtf8(note));
        },
        *dataset.summary);
  }
  return wire;
}

namespace {

// Reads `no_inverse_edges`, an older field for inverse_edges KEEP. The options have no row for it.
void ReadNoInverseEdges(const v1::ImportOptions& wire, data::ImportOptions& options, Violations& violations) {
  if (!wire.no_inverse_edges()) return;
  if (wire.inverse_edges() != v1::ImportOptions::INVERSE_EDGES_UNSPECIFIED &&
      options.inverse_edges != data::InverseEdges::kKeep) {
    violations.Add("options.no_inverse_edges",
                   absl::StrCat("true stands beside inverse_edges ",
                                AbslView(data::kInverseEdgesNames.Name(options.inverse_edges)),
                                "; one of them is accepted, or inverse_edges keep"));
  }
  options.inverse_edges = data::InverseEdges::kKeep;
}

}  // namespace

absl::StatusOr<ImportRequest> ImportRequestFromWire(const v1::ImportDatasetRequest& wire) {
  Violations violations;
  ImportRequest request;
  request.id = DatasetId(wire.dataset_id());
  if (wire.has_options()) {
    WireReader(wire.options(), "options.", violations).Read(request.options);
    ReadNoInverseEdges(wire.options(), request.options, violations);
    // Without a source_path, the whole upload is imported.
    if (!wire.upload().empty() && request.options.source.empty()) request.options.source = ".";
  } else {
    violations.Add("options", "is missing; accepted: ImportOptions with at least a source_path");
  }
  // A request that the domain cannot represent never gets to the catalog. So the catalog's checks run here, too: the
  // answer then lists every bad field.
  if (!violations.empty()) {
    violations.AddMissing(wire.has_options() ? data::CheckImport(request.id, request.options)
                                             : CheckIdSyntax("dataset_id", request.id.value()));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return request;
}

v1::ImportOptions ImportOptionsToWire(const data::ImportOptions& options) {
  v1::ImportOptions wire;
  WireWriter(wire).Write(options);
  wire.set_no_inverse_edges(options.inverse_edges == data::InverseEdges::kKeep);
  return wire;
}

namespace {

using SamplerKinds = WireEnum<v1::SamplerKind, spec::kSamplerKindNames>;
using TemporalSamplings = WireEnum<v1::TemporalSampling, spec::kTemporalSamplingNames>;

// `wire` is a v1::NeighborSampling or v1::SampleDatasetRequest::Neighbors. `options` has the members replace,
// weighted, disjoint, temporal and sampler. For an unknown value, adds a violation of the field, with `prefix`
// ("neighbors.") before the field's name.
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

// Returns the wire's name for `field`, a name in the domain: of a field of the query ("nodes[3]"), of a field of its
// kind ("fan_outs"), or of the kind itself ("walks").
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
  // A negative value becomes a huge value, which the range check refuses.
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
