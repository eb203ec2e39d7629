#include "client/dataset_view.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/format.h"
#include "client/style.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

Cell StateCell(v1::Dataset::State state) {
  const Tone tone = state == v1::Dataset::STATE_READY    ? Tone::kGood
                    : state == v1::Dataset::STATE_FAILED ? Tone::kBad
                                                         : Tone::kWarn;
  return {StateName(state), tone};
}

std::string Id(const v1::Dataset& dataset) { return std::string(StripCollection("datasets", dataset.name())); }

std::string FeatureText(const v1::FeatureSummary& features) {
  if (features.width() == 0) return "none";
  const auto& types = *v1::FeatureSummary::DataType_descriptor();
  std::string text = absl::StrCat(CountText(features.width()), features.width() == 1 ? " column of " : " columns of ",
                                  EnumShortName(types, features.data_type()));
  if (features.converted_from() != v1::FeatureSummary::DATA_TYPE_UNSPECIFIED) {
    absl::StrAppend(&text, ", converted from ", EnumShortName(types, features.converted_from()));
    absl::StrAppendFormat(&text, " (error at most %.2g, %.2g rms, of the column's largest)", features.largest_error(),
                          features.rms_error());
  }
  return text;
}

std::vector<Cell> SizeRow(std::string name, const v1::SizeStatistics& sizes) {
  return {std::move(name),
          CountText(sizes.num_graphs()),
          CountText(sizes.num_nodes()),
          CountText(sizes.num_edges()),
          absl::StrFormat("%.2f ± %.2f", sizes.mean_nodes(), sizes.std_nodes()),
          absl::StrFormat("%.2f ± %.2f", sizes.mean_edges(), sizes.std_edges()),
          CountText(sizes.max_nodes()),
          CountText(sizes.max_edges()),
          absl::StrFormat("%.3f", sizes.node_edge_correlation())};
}

std::string ProgressText(const v1::ImportProgress& progress) {
  return absl::StrCat(BytesText(progress.bytes_read()), " of ", BytesText(progress.bytes_total()), "  ",
                      progress.current_file());
}

// The values in a row of the list. A value that the dataset's kind does not have stays kNothing.
struct Sizes {
  std::string kind = kNothing, graphs = kNothing, nodes = kNothing, edges = kNothing, targets = kNothing,
              bytes = kNothing;
};

Sizes SizesOf(const v1::Dataset& dataset) {
  if (dataset.has_graph_set()) {
    const v1::GraphSetSummary& s = dataset.graph_set();
    return {"graph set",
            CountText(s.all().num_graphs()),
            CountText(s.all().num_nodes()),
            CountText(s.all().num_edges()),
            absl::StrCat(s.num_targets()),
            BytesText(s.store_bytes())};
  }
  if (dataset.has_graph()) {
    const v1::GraphSummary& s = dataset.graph();
    return {"graph",
            "1",
            CountText(s.num_nodes()),
            CountText(s.num_edges()),
            absl::StrCat(s.num_targets()),
            BytesText(s.store_bytes())};
  }
  return {};
}

// Says which directions of the edges the dataset contains, and why.
std::string DirectionsText(v1::EdgeDirections directions, bool inverse_edges_added) {
  switch (directions) {
    case v1::EDGE_DIRECTIONS_ADDED:
      return "inverse edges added";
    case v1::EDGE_DIRECTIONS_LISTED:
    case v1::EDGE_DIRECTIONS_KEPT_BOTH:
      return "both directions listed";
    case v1::EDGE_DIRECTIONS_KEPT:
      return "as listed";
    default:
      return inverse_edges_added ? "inverse edges added" : "";
  }
}

std::string EdgesText(const v1::GraphSummary& summary) {
  const std::string directions = DirectionsText(summary.directions(), summary.inverse_edges_added());
  std::string text = absl::StrCat(CountText(summary.num_edges()), summary.symmetric() ? ", symmetric" : ", directed",
                                  directions.empty() ? "" : absl::StrCat(" (", directions, ")"));
  if (summary.num_self_loops() > 0) absl::StrAppend(&text, ", ", CountText(summary.num_self_loops()), " self-loops");
  if (summary.num_duplicate_edges() > 0)
    absl::StrAppend(&text, ", ", CountText(summary.num_duplicate_edges()), " duplicates dropped");
  if (summary.num_equal_edges() > 0)
    absl::StrAppend(&text, ", ", CountText(summary.num_equal_edges()), " equal to another");
  if (summary.weighted()) absl::StrAppend(&text, ", weights");
  if (summary.timestamped()) absl::StrAppend(&text, ", timestamps");
  return text;
}

std::string NodesText(const v1::GraphSummary& summary) {
  std::string text = CountText(summary.num_nodes());
  if (summary.node_times()) absl::StrAppend(&text, ", times");
  if (summary.num_isolated_nodes() > 0)
    absl::StrAppend(&text, ", ", CountText(summary.num_isolated_nodes()), " of them isolated");
  absl::StrAppend(&text, ", at most ", CountText(summary.max_degree()), " edges into one");
  if (summary.named()) absl::StrAppend(&text, "; the source's names kept");
  return text;
}

// Labels are float32. The text has just the digits that read back as the same float; more digits would be noise.
std::string LabelText(double label) {
  std::array<char, 32> digits;
  char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<float>(label)).ptr;
  return {digits.data(), end};
}

template <class Summary>
std::string LabelRange(const Summary& summary) {
  return absl::StrCat(summary.integer_labels() ? "whole numbers " : "", LabelText(summary.min_label()), " to ",
                      LabelText(summary.max_label()));
}

std::string LabelsText(const v1::GraphSummary& summary) {
  if (summary.num_targets() == 0) return "none";
  std::string text =
      absl::StrCat(summary.num_targets(), " a node, ", CountText(summary.num_missing_labels()), " labels missing");
  if (summary.num_missing_labels() < summary.num_nodes() * summary.num_targets()) {
    absl::StrAppend(&text, ", ", LabelRange(summary));
  }
  return text;
}

std::string NegativesText(int64_t of_each, int64_t pairs) {
  if (of_each > 0) return absl::StrCat(" (", CountText(of_each), of_each == 1 ? " negative each)" : " negatives each)");
  return pairs > 0 ? absl::StrCat(" (", CountText(pairs), pairs == 1 ? " negative)" : " negatives)") : "";
}

std::string GivenLinksText(const v1::GivenLinks& links) {
  return absl::StrCat("split by the source: train ", CountText(links.num_train()), ", valid ",
                      CountText(links.num_valid()),
                      NegativesText(links.valid_negatives(), links.valid_negative_pairs()), ", test ",
                      CountText(links.num_test()), NegativesText(links.test_negatives(), links.test_negative_pairs()));
}

// Adds a field that lists the source's values in each column of categories, such as "label 1: 3 values, 0, 1, 2".
void AddCategories(const char* name, const v1::FeatureSummary& features, std::vector<Field>& fields) {
  constexpr int kColumns = 4;
  std::string text;
  for (int c = 0; c < std::min(kColumns, features.categories_size()); ++c) {
    const v1::FeatureSummary::Categories& each = features.categories(c);
    absl::StrAppend(&text, text.empty() ? "" : "; ", OneLine(each.name()), ": ");
    if (each.num_values() == 0) {
      absl::StrAppend(&text, "too many values to be categories");
      continue;
    }
    absl::StrAppend(&text, CountText(each.num_values()), each.num_values() == 1 ? " value" : " values", ", ",
                    absl::StrJoin(each.first_values(), ", "),
                    each.num_values() > each.first_values_size() ? ", ..." : "");
  }
  if (text.empty()) return;
  if (features.categories_size() > kColumns) {
    absl::StrAppend(&text, "; and ", features.categories_size() - kColumns, " more columns");
  }
  fields.push_back({name, text});
}

void AddPositions(int32_t columns, std::vector<Field>& fields) {
  if (columns > 0) fields.push_back({"positions", absl::StrCat(columns, columns == 1 ? " column" : " columns")});
}

void AddSummary(const v1::GraphSummary& summary, std::vector<Field>& fields) {
  fields.push_back({"nodes", NodesText(summary)});
  if (summary.order() != v1::ImportOptions::ORDER_UNSPECIFIED && summary.order() != v1::ImportOptions::ORDER_NONE) {
    fields.push_back({"order", EnumShortName(*v1::ImportOptions::Order_descriptor(), summary.order())});
  }
  fields.push_back({"edges", EdgesText(summary)});
  std::string features = FeatureText(summary.node_features());
  if (summary.node_features().data_type() == v1::FeatureSummary::DATA_TYPE_SPARSE)
    absl::StrAppend(&features, ", ", CountText(summary.node_feature_nonzeros()), " values");
  fields.push_back({"node features", features});
  fields.push_back({"edge features", FeatureText(summary.edge_features())});
  AddCategories("edge categories", summary.edge_features(), fields);
  AddPositions(summary.position_columns(), fields);
  fields.push_back({"targets", LabelsText(summary)});
  fields.push_back({"split", absl::StrCat(summary.split(), ": train ", CountText(summary.num_train_nodes()), ", valid ",
                                          CountText(summary.num_valid_nodes()), ", test ",
                                          CountText(summary.num_test_nodes()), " nodes")});
  if (summary.has_links()) fields.push_back({"links", GivenLinksText(summary.links())});
  std::string store = BytesText(summary.store_bytes());
  if (summary.num_edges() > 0) {
    absl::StrAppendFormat(&store, ", %s of it edges (%.2f bytes an edge)", BytesText(summary.adjacency_bytes()),
                          static_cast<double>(summary.adjacency_bytes()) / static_cast<double>(summary.num_edges()));
  }
  fields.push_back({"store", store});
}

std::string LabelsText(const v1::GraphSetSummary& summary) {
  if (summary.num_targets() == 0) return "none";
  std::string text =
      absl::StrCat(summary.num_targets(), " a graph, ", CountText(summary.num_missing_labels()), " labels missing");
  if (!summary.has_min_label() || summary.num_missing_labels() == summary.num_targets() * summary.all().num_graphs()) {
    return text;
  }
  if (summary.class_values().empty()) return absl::StrCat(text, ", ", LabelRange(summary));
  constexpr int kShown = 16;
  absl::StrAppend(&text, ", ", summary.class_values_size(), summary.class_values_size() == 1 ? " class:" : " classes:");
  for (int c = 0; c < std::min(kShown, summary.class_values_size()); ++c) {
    absl::StrAppend(&text, c == 0 ? " " : ", ", c, " is ", summary.class_values(c));
  }
  return absl::StrCat(text, summary.class_values_size() > kShown ? ", ..." : "", " in the source");
}

std::string FeatureText(const v1::FeatureSummary& features, const std::string& origin) {
  return absl::StrCat(FeatureText(features), origin.empty() ? "" : ": ", origin);
}

void AddSummary(const v1::GraphSetSummary& summary, bool coalesced, std::vector<Field>& fields) {
  fields.push_back({"split", summary.split()});
  const std::string directions = DirectionsText(summary.directions(), summary.inverse_edges_added());
  fields.push_back({"inverse edges", summary.inverse_edges_added() ? "added"
                                     : directions.empty()          ? "as imported"
                                                                   : absl::StrCat("not added, ", directions)});
  if (summary.num_duplicate_edges() > 0) {
    fields.push_back({"equal edges", absl::StrCat(CountText(summary.num_duplicate_edges()), " beyond the first, ",
                                                  coalesced ? "dropped" : "kept")});
  }
  fields.push_back({"node features", FeatureText(summary.node_features(), summary.node_feature_origin())});
  AddCategories("node categories", summary.node_features(), fields);
  fields.push_back({"edge features", FeatureText(summary.edge_features(), summary.edge_feature_origin())});
  AddCategories("edge categories", summary.edge_features(), fields);
  AddPositions(summary.position_columns(), fields);
  fields.push_back({"targets", LabelsText(summary)});
  fields.push_back({"store", BytesText(summary.store_bytes())});
}

}  // namespace

std::string StateName(v1::Dataset::State state) { return EnumShortName(*v1::Dataset::State_descriptor(), state); }

std::string RenderDatasetList(const std::vector<v1::Dataset>& datasets, const ViewTime& time,
                              const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::Dataset& dataset : datasets) {
    const Sizes sizes = SizesOf(dataset);
    rows.push_back({Id(dataset), sizes.kind, StateCell(dataset.state()), sizes.graphs, sizes.nodes, sizes.edges,
                    sizes.targets, sizes.bytes, AgeText(ToTime(dataset.create_time()), time.now, time.zone)});
  }
  return RenderTable({{"DATASET"},
                      {"KIND"},
                      {"STATE"},
                      {"GRAPHS", Align::kRight},
                      {"NODES", Align::kRight},
                      {"EDGES", Align::kRight},
                      {"TARGETS", Align::kRight},
                      {"SIZE", Align::kRight},
                      {"CREATED", Align::kRight}},
                     rows, style);
}

std::string RenderDataset(const v1::Dataset& dataset, const ViewTime& time, const RenderStyle& style) {
  std::vector<Field> fields{{"state", StateCell(dataset.state())}};
  if (!dataset.import_options().source_path().empty())
    fields.push_back({"source", dataset.import_options().source_path()});
  if (!dataset.uid().empty()) fields.push_back({"uid", OneLine(dataset.uid())});
  if (dataset.has_create_time()) fields.push_back({"created", ClockText(ToTime(dataset.create_time()), time.zone)});
  if (dataset.has_import_progress()) fields.push_back({"read", ProgressText(dataset.import_progress())});
  if (!dataset.error().empty()) fields.push_back({"error", {dataset.error(), Tone::kBad}});
  if (!dataset.last_error().empty()) fields.push_back({"last error", {dataset.last_error(), Tone::kWarn}});
  if (dataset.has_retry_time()) fields.push_back({"tries again", ClockText(ToTime(dataset.retry_time()), time.zone)});
  if (dataset.has_graph_set()) AddSummary(dataset.graph_set(), dataset.import_options().coalesce(), fields);
  if (dataset.has_graph()) AddSummary(dataset.graph(), fields);
  for (const std::string& note : dataset.import_notes()) fields.push_back({"note", {OneLine(note), Tone::kWarn}});
  std::string out = absl::StrCat("dataset ", Id(dataset), "\n", RenderFields(fields, style));
  if (!dataset.has_graph_set()) return out;
  const v1::GraphSetSummary& summary = dataset.graph_set();
  const std::string sizes = RenderTable({{"SPLIT"},
                                         {"GRAPHS", Align::kRight},
                                         {"NODES", Align::kRight},
                                         {"EDGES", Align::kRight},
                                         {"NODES/GRAPH", Align::kRight},
                                         {"EDGES/GRAPH", Align::kRight},
                                         {"MAX NODES", Align::kRight},
                                         {"MAX EDGES", Align::kRight},
                                         {"CORRELATION", Align::kRight}},
                                        {SizeRow("all", summary.all()), SizeRow("train", summary.train()),
                                         SizeRow("valid", summary.valid()), SizeRow("test", summary.test())},
                                        style);
  return absl::StrCat(out, "\n", sizes);
}

}  // namespace permafrost::client
