#include "api/convert_dataset.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "api/convert_time.h"
#include "api/resource_name.h"
#include "api/text.h"
#include "api/wire_enum.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

constexpr WireEnum<v1::Dataset::State, data::DatasetState, 3> kStates{{{
    {v1::Dataset::STATE_IMPORTING, data::DatasetState::kImporting},
    {v1::Dataset::STATE_READY, data::DatasetState::kReady},
    {v1::Dataset::STATE_FAILED, data::DatasetState::kFailed},
}}};
constexpr WireEnum<v1::FeatureSummary::DataType, data::DataType, 3> kDataTypes{{{
    {v1::FeatureSummary::DATA_TYPE_UNSPECIFIED, data::DataType::kNone},
    {v1::FeatureSummary::DATA_TYPE_INT32, data::DataType::kInt32},
    {v1::FeatureSummary::DATA_TYPE_FLOAT32, data::DataType::kFloat32},
}}};

void CheckFraction(std::string_view field, double value, Violations& violations) {
  // Written so that NaN fails.
  if (!(value >= 0 && value <= 1)) violations.Add(field, absl::StrCat(value, " is outside 0 to 1"));
}

void FeaturesToWire(const data::FeatureSummary& features, v1::FeatureSummary& wire) {
  wire.set_data_type(kDataTypes.ToWire(features.type));
  wire.set_width(static_cast<int32_t>(features.width));
  wire.mutable_min()->Add(features.min.begin(), features.min.end());
  wire.mutable_max()->Add(features.max.begin(), features.max.end());
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

void SummaryToWire(const data::GraphSetSummary& summary, v1::GraphSetSummary& wire) {
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
}

}  // namespace

absl::StatusOr<ImportRequest> ImportRequestFromWire(const v1::ImportDatasetRequest& wire) {
  Violations violations;
  ImportRequest request;
  request.id = DatasetId(wire.dataset_id());
  for (const FieldViolation& v : GetViolations(CheckIdSyntax("dataset_id", wire.dataset_id()))) {
    violations.Add(v.field, v.description);
  }
  const v1::ImportOptions& options = wire.options();
  if (!wire.has_options()) {
    violations.Add("options", "is missing; accepted: ImportOptions with at least a source_path");
  } else if (options.source_path().empty()) {
    violations.Add("options.source_path", "is empty; accepted: a directory on the server in OGB's CSV layout");
  }
  request.options.source = options.source_path();
  request.options.add_inverse_edges = !options.no_inverse_edges();
  request.options.split = options.split();
  request.options.split_seed = options.split_seed();
  if (options.train_fraction() != 0 || options.valid_fraction() != 0) {
    request.options.train_fraction = options.train_fraction();
    request.options.valid_fraction = options.valid_fraction();
    CheckFraction("options.train_fraction", options.train_fraction(), violations);
    CheckFraction("options.valid_fraction", options.valid_fraction(), violations);
    if (options.train_fraction() + options.valid_fraction() > 1) {
      violations.Add("options.valid_fraction", absl::StrCat(options.valid_fraction(), " with train_fraction ",
                                                            options.train_fraction(), " is above 1 together"));
    }
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return request;
}

v1::Dataset DatasetToWire(const data::Dataset& dataset) {
  v1::Dataset wire;
  wire.set_name(FormatDatasetName(dataset.id));
  wire.set_state(kStates.ToWire(dataset.state));
  SetTime(dataset.create_time, [&wire] { return wire.mutable_create_time(); });
  v1::ImportOptions& options = *wire.mutable_import_options();
  options.set_source_path(ValidUtf8(dataset.options.source.string()));
  options.set_no_inverse_edges(!dataset.options.add_inverse_edges);
  options.set_split(ValidUtf8(dataset.options.split));
  options.set_split_seed(dataset.options.split_seed);
  options.set_train_fraction(dataset.options.train_fraction);
  options.set_valid_fraction(dataset.options.valid_fraction);
  if (dataset.state == data::DatasetState::kImporting) {
    v1::ImportProgress& progress = *wire.mutable_import_progress();
    progress.set_current_file(ValidUtf8(dataset.progress.current_file));
    progress.set_bytes_read(dataset.progress.bytes_read);
    progress.set_bytes_total(dataset.progress.bytes_total);
  }
  wire.set_error(ValidUtf8(dataset.error));
  if (dataset.summary) SummaryToWire(*dataset.summary, *wire.mutable_summary());
  return wire;
}

}  // namespace permafrost::api
