#include "api/wire/convert_dataset.h"

#include <string>
#include <string_view>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "api/wire/convert_time.h"
#include "api/wire/resource_name.h"
#include "api/wire/text.h"
#include "api/wire/wire_enum.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/catalog/catalog.h"

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
  // One that was only checked has neither.
  wire.set_uid(ValidUtf8(dataset.uid));
  if (!dataset.uid.empty()) wire.set_etag(data::EtagOf(dataset));
  *wire.mutable_import_options() = ImportOptionsToWire(dataset.options);
  if (dataset.state == data::DatasetState::kImporting) {
    v1::ImportProgress& progress = *wire.mutable_import_progress();
    progress.set_current_file(ValidUtf8(dataset.progress.current_file));
    progress.set_bytes_read(dataset.progress.bytes_read);
    progress.set_bytes_total(dataset.progress.bytes_total);
  }
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

using Formats = WireEnum<v1::ImportOptions::Format, data::kImportFormatNames>;
using NodeFeatures = WireEnum<v1::ImportOptions::NodeFeatures, data::kNodeFeatureChoiceNames>;
using FeatureTypes = WireEnum<v1::ImportOptions::FeatureType, data::kFeatureTypeNames>;
using Orders = WireEnum<v1::ImportOptions::Order, data::kNodeOrderNames>;
using InverseEdges = WireEnum<v1::ImportOptions::InverseEdges, data::kInverseEdgesNames>;
using NodeIds = WireEnum<v1::EdgeListOptions::NodeIds, data::kNodeIdsNames>;
using Columns = WireEnum<v1::EdgeListOptions::Column, data::kEdgeColumnNames>;
using TuNodeFeatures = WireEnum<v1::TuOptions::NodeFeatures, data::kTuNodeFeaturesNames>;
using Headers = WireEnum<v1::EdgeListOptions::Header, data::kHeaderNames>;

// No edge list has more columns that matter, and a request has room for a million of them.
constexpr int kMaxColumns = 64;

// '\0' for the empty text.
char CharFromWire(std::string_view field, const std::string& text, Violations& violations) {
  if (text.empty()) return '\0';
  const char c = text.front();
  const bool one = text.size() == 1;
  if (!one || !absl::ascii_isascii(static_cast<unsigned char>(c)) || c == '\0' || c == '\n' || c == '\r') {
    violations.Add(field, absl::StrCat("'", Clip(ValidUtf8(text), 32), "' is not one ASCII character within a line"));
    return '\0';
  }
  return c;
}

std::string CharToWire(char c) { return c == '\0' ? "" : std::string(1, c); }

data::EdgeListOptions EdgeListFromWire(const v1::EdgeListOptions& wire, Violations& violations) {
  data::EdgeListOptions options;
  NodeIds::Read(wire.node_ids(), "options.edge_list.node_ids", options.node_ids, violations);
  if (wire.columns_size() > kMaxColumns) {
    violations.Add("options.edge_list.columns",
                   absl::StrCat("has ", wire.columns_size(), " entries; accepted: at most ", kMaxColumns));
  } else {
    for (int i = 0; i < wire.columns_size(); ++i) {
      const std::string field = absl::StrCat("options.edge_list.columns[", i, "]");
      const int number = wire.columns(i);
      // Unlike a field that is not set, an entry has no default.
      if (number == v1::EdgeListOptions::COLUMN_UNSPECIFIED) {
        violations.Add(field, absl::StrCat("says nothing; accepted: ", Columns::Accepted()));
      } else {
        Columns::Read(number, field, options.columns.emplace_back(data::EdgeColumn::kIgnore), violations);
      }
    }
  }
  Headers::Read(wire.header(), "options.edge_list.header", options.header, violations);
  options.delimiter = CharFromWire("options.edge_list.delimiter", wire.delimiter(), violations);
  if (wire.has_comment()) options.comment = CharFromWire("options.edge_list.comment", wire.comment(), violations);
  if (wire.has_quote()) options.quote = CharFromWire("options.edge_list.quote", wire.quote(), violations);
  options.num_nodes = wire.num_nodes();
  return options;
}

v1::EdgeListOptions EdgeListToWire(const data::EdgeListOptions& options) {
  v1::EdgeListOptions wire;
  wire.set_node_ids(NodeIds::ToWire(options.node_ids));
  for (const data::EdgeColumn column : options.columns) wire.add_columns(Columns::ToWire(column));
  wire.set_header(Headers::ToWire(options.header));
  wire.set_delimiter(CharToWire(options.delimiter));
  wire.set_comment(CharToWire(options.comment));
  wire.set_quote(CharToWire(options.quote));
  wire.set_num_nodes(options.num_nodes);
  return wire;
}

data::TuOptions TuFromWire(const v1::TuOptions& wire, Violations& violations) {
  data::TuOptions options;
  TuNodeFeatures::Read(wire.node_features(), "options.tu.node_features", options.node_features, violations);
  options.one_hot = wire.one_hot();
  if (wire.max_degree() != 0) options.max_degree = wire.max_degree();
  return options;
}

v1::TuOptions TuToWire(const data::TuOptions& options) {
  v1::TuOptions wire;
  wire.set_node_features(TuNodeFeatures::ToWire(options.node_features));
  wire.set_one_hot(options.one_hot);
  wire.set_max_degree(options.max_degree);
  return wire;
}

data::ImportOptions OptionsFromWire(const v1::ImportOptions& wire, Violations& violations) {
  data::ImportOptions options;
  options.source = wire.source_path();
  Formats::Read(wire.format(), "options.format", options.format, violations);
  InverseEdges::Read(wire.inverse_edges(), "options.inverse_edges", options.inverse_edges, violations);
  if (wire.no_inverse_edges()) {
    if (wire.inverse_edges() != v1::ImportOptions::INVERSE_EDGES_UNSPECIFIED &&
        options.inverse_edges != data::InverseEdges::kKeep) {
      violations.Add("options.no_inverse_edges",
                     absl::StrCat("true stands beside inverse_edges ",
                                  AbslView(data::kInverseEdgesNames.Name(options.inverse_edges)),
                                  "; one of them is accepted, or inverse_edges keep"));
    }
    options.inverse_edges = data::InverseEdges::kKeep;
  }
  options.coalesce = wire.coalesce();
  options.keep_out_edges = !wire.no_out_edges();
  NodeFeatures::Read(wire.node_features(), "options.node_features", options.node_features, violations);
  FeatureTypes::Read(wire.feature_type(), "options.feature_type", options.feature_type, violations);
  Orders::Read(wire.order(), "options.order", options.order, violations);
  options.split = wire.split();
  options.split_seed = wire.split_seed();
  if (wire.has_train_fraction()) options.train_fraction = wire.train_fraction();
  if (wire.has_valid_fraction()) options.valid_fraction = wire.valid_fraction();
  options.edge_list = EdgeListFromWire(wire.edge_list(), violations);
  options.tu = TuFromWire(wire.tu(), violations);
  if (wire.memory_bytes() < 0) {
    violations.Add("options.memory_bytes", absl::StrCat(wire.memory_bytes(), " is below 0"));
  } else {
    options.memory_bytes = static_cast<uint64_t>(wire.memory_bytes());
  }
  return options;
}

}  // namespace

absl::StatusOr<ImportRequest> ImportRequestFromWire(const v1::ImportDatasetRequest& wire) {
  Violations violations;
  ImportRequest request;
  request.id = DatasetId(wire.dataset_id());
  if (wire.has_options()) {
    request.options = OptionsFromWire(wire.options(), violations);
    // Without a source, all of the upload is imported.
    if (!wire.upload().empty() && request.options.source.empty()) request.options.source = ".";
  } else {
    violations.Add("options", "is missing; accepted: ImportOptions with at least a source_path");
  }
  // A request that says something is the catalog's to check. One that cannot be read never gets there: what it would
  // find is told here too, so that the answer has every bad field.
  if (!violations.empty()) {
    violations.AddMissing(wire.has_options() ? data::CheckImport(request.id, request.options)
                                             : CheckIdSyntax("dataset_id", request.id.value()));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return request;
}

v1::ImportOptions ImportOptionsToWire(const data::ImportOptions& options) {
  v1::ImportOptions wire;
  wire.set_source_path(ValidUtf8(options.source.string()));
  wire.set_format(Formats::ToWire(options.format));
  wire.set_no_inverse_edges(options.inverse_edges == data::InverseEdges::kKeep);
  wire.set_inverse_edges(InverseEdges::ToWire(options.inverse_edges));
  wire.set_coalesce(options.coalesce);
  wire.set_no_out_edges(!options.keep_out_edges);
  wire.set_node_features(NodeFeatures::ToWire(options.node_features));
  wire.set_feature_type(FeatureTypes::ToWire(options.feature_type));
  wire.set_order(Orders::ToWire(options.order));
  wire.set_split(ValidUtf8(options.split));
  wire.set_split_seed(options.split_seed);
  wire.set_train_fraction(options.train_fraction);
  wire.set_valid_fraction(options.valid_fraction);
  *wire.mutable_edge_list() = EdgeListToWire(options.edge_list);
  *wire.mutable_tu() = TuToWire(options.tu);
  wire.set_memory_bytes(static_cast<int64_t>(options.memory_bytes));
  return wire;
}

}  // namespace permafrost::api
