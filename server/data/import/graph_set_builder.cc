#include "data/import/graph_set_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/statistics.h"

namespace permafrost::data {
namespace {

constexpr int64_t kMaxGraphs = std::numeric_limits<uint32_t>::max();

// Bytes that the largest moment takes for each graph: two offsets, its place in a split file and its id there, and the
// room that a vector growing to an unknown length leaves unused.
constexpr uint64_t kBytesPerGraph = 48;
// And for each stored edge of one graph, as EdgesOfGraph keeps and sorts them.
constexpr uint64_t kBytesPerEdge = 72;
// And for each byte of its edges' features, in a vector that grows.
constexpr uint64_t kBytesPerFeatureByte = 3;

}  // namespace

GraphSetBuilder::GraphSetBuilder(const ImportOptions& options, const std::filesystem::path& directory,
                                 ImportMonitor& monitor)
    : options_(options), monitor_(monitor), writer_(directory, monitor.stop()) {
  summary_.integer_labels = true;  // until one is not
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
    // Larger ones are no classes, and may be no int64 either.
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
