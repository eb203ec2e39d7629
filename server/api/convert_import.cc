#include "api/convert_import.h"

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "api/text.h"
#include "api/wire_enum.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/catalog/catalog.h"

namespace permafrost::api {
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
    // All of an upload.
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
