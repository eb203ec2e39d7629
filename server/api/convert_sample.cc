#include "api/convert_sample.h"

#include <string>
#include <string_view>
#include <variant>

#include "absl/strings/str_cat.h"
#include "api/convert_neighbors.h"
#include "api/text.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

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

data::WalkOptions WalkFromWire(const v1::SampleDatasetRequest::Walk& wire, uint64_t seed) {
  data::WalkOptions options;
  if (wire.length() != 0) options.length = wire.length();
  if (wire.p() != 0) options.p = wire.p();
  if (wire.q() != 0) options.q = wire.q();
  options.seed = seed;
  return options;
}

// The wire's name of a field that the domain names: of the query ("nodes[3]"), of its kind ("fan_outs"), or the kind.
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
  if (wire.count() != 0) query.count = wire.count();
  Violations violations;
  switch (wire.kind_case()) {
    case v1::SampleDatasetRequest::kNeighbors:
      query.kind = NeighborsFromWire(wire.neighbors(), wire.seed(), violations);
      if (wire.neighbors().has_seed_time()) query.seed_time = wire.neighbors().seed_time();
      PF_RETURN_IF_ERROR(violations.ToStatus());
      return query;
    case v1::SampleDatasetRequest::kWalk:
      query.kind = WalkFromWire(wire.walk(), wire.seed());
      return query;
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

}  // namespace permafrost::api
