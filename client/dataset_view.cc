#include "client/dataset_view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/enum_text.h"
#include "client/format.h"
#include "client/table.h"
#include "client/wire_time.h"

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
  return absl::StrCat(features.width(), features.width() == 1 ? " column of " : " columns of ",
                      EnumShortName(*v1::FeatureSummary::DataType_descriptor(), features.data_type()));
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

void AddSummary(const v1::GraphSetSummary& summary, std::vector<Field>& fields) {
  fields.push_back({"split", summary.split()});
  fields.push_back({"inverse edges", summary.inverse_edges_added() ? "added" : "as imported"});
  fields.push_back({"node features", FeatureText(summary.node_features())});
  fields.push_back({"edge features", FeatureText(summary.edge_features())});
  fields.push_back({"targets", absl::StrCat(summary.num_targets(), " a graph, ",
                                            CountText(summary.num_missing_labels()), " labels missing")});
  fields.push_back({"store", BytesText(summary.store_bytes())});
}

}  // namespace

std::string StateName(v1::Dataset::State state) { return EnumShortName(*v1::Dataset::State_descriptor(), state); }

std::string RenderDatasetList(const std::vector<v1::Dataset>& datasets, const ViewTime& time,
                              const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::Dataset& dataset : datasets) {
    const v1::GraphSetSummary& summary = dataset.summary();
    const bool ready = dataset.has_summary();
    rows.push_back({Id(dataset), StateCell(dataset.state()), ready ? CountText(summary.all().num_graphs()) : kNothing,
                    ready ? CountText(summary.all().num_nodes()) : kNothing,
                    ready ? CountText(summary.all().num_edges()) : kNothing,
                    ready ? absl::StrCat(summary.num_targets()) : kNothing,
                    ready ? BytesText(summary.store_bytes()) : kNothing,
                    AgeText(ToTime(dataset.create_time()), time.now, time.zone)});
  }
  return RenderTable({{"DATASET"},
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
  if (dataset.has_create_time()) fields.push_back({"created", ClockText(ToTime(dataset.create_time()), time.zone)});
  if (dataset.has_import_progress()) fields.push_back({"read", ProgressText(dataset.import_progress())});
  if (!dataset.error().empty()) fields.push_back({"error", {dataset.error(), Tone::kBad}});
  if (dataset.has_summary()) AddSummary(dataset.summary(), fields);
  std::string out = absl::StrCat("dataset ", Id(dataset), "\n", RenderFields(fields, style));
  if (!dataset.has_summary()) return out;
  const v1::GraphSetSummary& summary = dataset.summary();
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
