#include "data/import/graph_set_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/sort/edge_sorter.h"
#include "data/source/csv_rows.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

void EdgesOfGraph::BeginGraph(int64_t graph, int64_t num_nodes) {
  graph_ = graph;
  num_nodes_ = num_nodes;
  file_source_.clear();
  file_target_.clear();
}

absl::Status EdgesOfGraph::Parse(const CsvRows& rows, std::string_view line) {
  Cells cells(line);
  std::string_view source_cell, target_cell, extra;
  cells.Next(source_cell);
  if (!cells.Next(target_cell) || cells.Next(extra)) return rows.WidthError(CountCells(line), 2, "source, target");
  uint32_t source = 0, target = 0;
  PF_RETURN_IF_ERROR(ParseEnd(rows, "source", source_cell, source));
  PF_RETURN_IF_ERROR(ParseEnd(rows, "target", target_cell, target));
  Add(source, target);
  return absl::OkStatus();
}

void EdgesOfGraph::Add(uint32_t source, uint32_t target) {
  file_source_.push_back(source);
  file_target_.push_back(target);
  if (add_inverses_) {
    file_source_.push_back(target);
    file_target_.push_back(source);
  }
}

absl::Status EdgesOfGraph::ParseEnd(const CsvRows& rows, std::string_view field, std::string_view cell,
                                    uint32_t& end) const {
  int64_t value = 0;
  const IntegerCell parsed = ParseInteger(cell, value);
  if (parsed == IntegerCell::kNotInteger) return rows.Error(field, absl::StrCat(Quote(cell), " is not an integer"));
  if (parsed == IntegerCell::kOutOfRange || value < 0 || value >= num_nodes_) {
    return rows.Error(field, num_nodes_ == 0
                                 ? absl::StrCat(Shorten(cell), " cannot be: graph ", graph_, " has no nodes")
                                 : absl::StrCat(Shorten(cell), " is outside 0..", num_nodes_ - 1, " (graph ", graph_,
                                                " has ", num_nodes_, num_nodes_ == 1 ? " node)" : " nodes)"));
  }
  end = static_cast<uint32_t>(value);
  return absl::OkStatus();
}

void EdgesOfGraph::SortEnds() {
  keys_.clear();
  for (size_t i = 0; i < file_target_.size(); ++i) keys_.push_back(MakeEdgeKey(file_target_[i], file_source_[i]));
  std::sort(keys_.begin(), keys_.end());
}

size_t EdgesOfGraph::CountEqual() {
  SortEnds();
  size_t equal = 0;
  for (size_t i = 1; i < keys_.size(); ++i) equal += keys_[i] == keys_[i - 1];
  return equal;
}

bool EdgesOfGraph::HasBothDirections() {
  SortEnds();
  inverses_.clear();
  for (const uint64_t key : keys_) inverses_.push_back(SwapEnds(key));
  std::sort(inverses_.begin(), inverses_.end());
  return keys_ == inverses_;
}

void EdgesOfGraph::Sort() {
  // The index in the low half makes all keys distinct, so that equal targets stay in file order.
  keys_.clear();
  for (size_t i = 0; i < file_target_.size(); ++i) keys_.push_back(uint64_t{file_target_[i]} << 32 | i);
  std::sort(keys_.begin(), keys_.end());
  source_.clear();
  target_.clear();
  file_row_.clear();
  for (const uint64_t key : keys_) {
    const auto i = static_cast<uint32_t>(key);
    source_.push_back(file_source_[i]);
    target_.push_back(file_target_[i]);
    file_row_.push_back(add_inverses_ ? i / 2 : i);
  }
}

namespace {

constexpr int64_t kMaxGraphs = std::numeric_limits<uint32_t>::max();

// Bytes per graph at the peak: two offsets, its place in a split file and its id there, and the unused capacity of
// growing vectors.
constexpr uint64_t kBytesPerGraph = 48;
// Bytes per stored edge of one graph, as EdgesOfGraph keeps and sorts it.
constexpr uint64_t kBytesPerEdge = 72;
// Bytes of memory per byte of edge features of one graph. A growing vector keeps these features.
constexpr uint64_t kBytesPerFeatureByte = 3;

}  // namespace

GraphSetBuilder::GraphSetBuilder(const ImportOptions& options, const std::filesystem::path& directory,
                                 ImportMonitor& monitor)
    : options_(options), monitor_(monitor), writer_(directory, monitor.stop()) {
  summary_.integer_labels = true;  // until a label is not an integer
}

absl::Status GraphSetBuilder::CheckMemory(const CsvRows& rows, uint64_t count, std::string_view things,
                                          uint64_t bytes_each) const {
  const uint64_t limit = monitor_.limits().memory_bytes;
  if (count <= limit / bytes_each) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(rows.name(), ":", rows.row(), ": ", count, " ", AbslView(things),
                                                   " take more memory than an import's limit, ", limit, " bytes (",
                                                   limit / bytes_each, " at ", bytes_each, " bytes each)"));
}

int64_t GraphSetBuilder::GraphOf(int64_t node, int64_t guess) const {
  const int64_t first = FirstNodeOf(guess);
  if (node >= first && node < first + NodesOf(guess)) return guess;
  const auto next = std::ranges::upper_bound(node_offsets_, static_cast<uint64_t>(node));
  return next - node_offsets_.begin() - 1;
}

absl::Status GraphSetBuilder::AddNodeCount(const CsvRows& rows, int64_t nodes) {
  if (num_graphs() == kMaxGraphs) return rows.Error(absl::StrCat("more than ", kMaxGraphs, " graphs"));
  PF_RETURN_IF_ERROR(CheckMemory(rows, node_offsets_.size(), "graphs", kBytesPerGraph));
  node_offsets_.push_back(node_offsets_.back() + static_cast<uint64_t>(nodes));
  return absl::OkStatus();
}

absl::Status GraphSetBuilder::AddEdgeCount(const CsvRows& rows, int64_t edges) {
  const auto stored = static_cast<uint64_t>(options_.inverse_edges == InverseEdges::kKeep ? edges : 2 * edges);
  PF_RETURN_IF_ERROR(CheckMemory(rows, stored, "edges of one graph", kBytesPerEdge));
  if (edge_offsets_.size() == 1) edge_offsets_.reserve(node_offsets_.size());
  edge_offsets_.push_back(edge_offsets_.back() + static_cast<uint64_t>(edges));
  return absl::OkStatus();
}

absl::Status GraphSetBuilder::FinishSizes(bool inverses) {
  summary_.inverse_edges_added = inverses;
  edges_.SetAddInverses(inverses);
  edge_factor_ = inverses ? 2 : 1;
  for (uint64_t& offset : edge_offsets_) offset *= static_cast<uint64_t>(edge_factor_);
  PF_RETURN_IF_ERROR(
      writer_.Write(SectionKind::kNodeOffsets, ElementType::kUint64, std::span<const uint64_t>(node_offsets_)));
  PF_RETURN_IF_ERROR(
      writer_.Write(SectionKind::kEdgeOffsets, ElementType::kUint64, std::span<const uint64_t>(edge_offsets_)));
  summary_.all = ComputeStatistics(node_offsets_, edge_offsets_);
  return absl::OkStatus();
}

absl::Status GraphSetBuilder::SetSplit(std::optional<SplitGraphs> split) {
  if (!split) split = DrawSplit(options_, num_graphs());
  constexpr SectionKind kKinds[] = {SectionKind::kTrainGraphs, SectionKind::kValidGraphs, SectionKind::kTestGraphs};
  for (size_t i = 0; i < split->graphs.size(); ++i) {
    const std::span<const uint32_t> graphs = split->graphs[i];
    PF_RETURN_IF_ERROR(writer_.Write(kKinds[i], ElementType::kUint32, graphs));
    summary_.splits[i] = ComputeStatistics(node_offsets_, edge_offsets_, graphs);
  }
  summary_.split_name = std::move(split->name);
  return absl::OkStatus();
}

absl::Status GraphSetBuilder::AddLabels(const CsvRows& rows, std::span<const float> labels) {
  const auto targets = static_cast<int64_t>(labels.size());
  if (summary_.num_targets == 0) {
    summary_.num_targets = targets;
    PF_RETURN_IF_ERROR(
        writer_.Begin(SectionKind::kLabels, ElementType::kFloat32, static_cast<uint32_t>(labels.size())));
  }
  if (targets != summary_.num_targets) return rows.WidthError(targets, summary_.num_targets, "as the rows before");
  for (const float label : labels) {
    if (std::isnan(label)) {
      ++summary_.num_missing_labels;
      continue;
    }
    const auto value = static_cast<double>(label);
    summary_.integer_labels &= std::floor(value) == value;
    summary_.min_label = any_label_ ? std::min(summary_.min_label, value) : value;
    summary_.max_label = any_label_ ? std::max(summary_.max_label, value) : value;
    any_label_ = true;
    // Labels above this limit are not classes, and may not fit in int64.
    constexpr double kExact = 1 << 24;
    if (summary_.integer_labels && targets == 1 && std::abs(value) <= kExact)
      classes_.Add(0, static_cast<int64_t>(value));
  }
  return writer_.Append(SectionKind::kLabels, labels);
}

absl::Status GraphSetBuilder::FinishLabels() {
  summary_.labels_known = true;
  summary_.integer_labels &= any_label_;
  std::optional<CategoryTable>& classes = writer_.categories().classes;
  if (summary_.integer_labels && summary_.num_targets == 1) {
    classes = CategoryTable{.origin = CategoryOrigin::kClass};
    if (summary_.class_values.empty()) {
      classes_.Take(0, *classes);
    } else {
      classes->ranked = true;
      classes->values = summary_.class_values;
    }
  }
  classes_.Clear();
  if (summary_.num_targets > 0) return absl::OkStatus();
  return writer_.Begin(SectionKind::kLabels, ElementType::kFloat32, 0);
}

absl::Status GraphSetBuilder::BeginFeatures(SectionKind kind, const FeatureSummary& features) {
  const ElementType type = features.type == DataType::kInt32 ? ElementType::kInt32 : ElementType::kFloat32;
  return writer_.Begin(kind, type, static_cast<uint32_t>(features.width));
}

absl::Status GraphSetBuilder::AddNodeFeatures(const FeatureSummary& features, std::span<const std::byte> row) {
  if (!std::exchange(node_features_begun_, true)) {
    PF_RETURN_IF_ERROR(BeginFeatures(SectionKind::kNodeFeatures, features));
  }
  return writer_.Append(SectionKind::kNodeFeatures, row);
}

absl::Status GraphSetBuilder::FinishNodeFeatures(const FeatureRows& features) {
  PF_RETURN_IF_ERROR(features.Finish());
  summary_.node_features = features.summary();
  writer_.categories().node.tables = features.categories();
  return absl::OkStatus();
}

absl::Status GraphSetBuilder::AddPosition(const CsvRows& rows, std::span<const std::byte> row) {
  if (summary_.position_columns == 0) {
    summary_.position_columns = static_cast<int64_t>(row.size() / sizeof(float));
    if (summary_.position_columns > kMaxPositionColumns) {
      return rows.Error(
          absl::StrCat(summary_.position_columns, " columns; 1..", kMaxPositionColumns, " are accepted for positions"));
    }
    PF_RETURN_IF_ERROR(writer_.Begin(SectionKind::kPositions, ElementType::kFloat32,
                                     static_cast<uint32_t>(summary_.position_columns)));
  }
  return writer_.Append(SectionKind::kPositions, row);
}

absl::Status GraphSetBuilder::BeginEdges() {
  edge_feature_bytes_ = 0;
  equal_edges_ = 0;
  both_directions_ = true;
  PF_RETURN_IF_ERROR(writer_.Begin(SectionKind::kEdgeSource, ElementType::kUint32));
  return writer_.Begin(SectionKind::kEdgeTarget, ElementType::kUint32);
}

absl::Status GraphSetBuilder::AddEdgeFeatures(const CsvRows& rows, const FeatureSummary& features,
                                              std::span<const std::byte> row) {
  if (edge_feature_bytes_ == 0) PF_RETURN_IF_ERROR(BeginFeatures(SectionKind::kEdgeFeatures, features));
  edge_feature_bytes_ = row.size();
  PF_RETURN_IF_ERROR(CheckMemory(rows, edge_features_.size() + row.size(), "bytes of one graph's edge features",
                                 kBytesPerFeatureByte));
  edge_features_.insert(edge_features_.end(), row.begin(), row.end());
  return absl::OkStatus();
}

absl::Status GraphSetBuilder::FinishGraphEdges() {
  equal_edges_ += static_cast<int64_t>(edges_.CountEqual());
  if (options_.inverse_edges == InverseEdges::kKeep) {
    both_directions_ = both_directions_ && edges_.HasBothDirections();
  }
  edges_.Sort();
  PF_RETURN_IF_ERROR(writer_.Append(SectionKind::kEdgeSource, edges_.source()));
  PF_RETURN_IF_ERROR(writer_.Append(SectionKind::kEdgeTarget, edges_.target()));
  if (edge_feature_bytes_ == 0) return absl::OkStatus();
  const std::span<const std::byte> features(edge_features_);
  for (const uint32_t row : edges_.file_row()) {
    PF_RETURN_IF_ERROR(
        writer_.Append(SectionKind::kEdgeFeatures, features.subspan(row * edge_feature_bytes_, edge_feature_bytes_)));
  }
  return absl::OkStatus();
}

absl::Status GraphSetBuilder::FinishEdges(const FeatureRows& features) {
  PF_RETURN_IF_ERROR(features.Finish());
  summary_.edge_features = features.summary();
  writer_.categories().edge.tables = features.categories();
  return absl::OkStatus();
}

absl::StatusOr<GraphSetSummary> GraphSetBuilder::Finish() {
  summary_.directions = summary_.inverse_edges_added                    ? EdgeDirections::kAdded
                        : options_.inverse_edges == InverseEdges::kAuto ? EdgeDirections::kListed
                        : both_directions_                              ? EdgeDirections::kKeptBoth
                                                                        : EdgeDirections::kKept;
  if (!options_.coalesce) summary_.duplicate_edges = equal_edges_;
  summary_.notes = monitor_.notes();
  PF_RETURN_IF_ERROR(writer_.Finish(summary_));
  return summary_;
}

}  // namespace permafrost::data
