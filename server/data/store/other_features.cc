#include "data/store/other_features.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "data/store/edge_rows.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {
namespace {

class FeaturedGraph final : public DerivedGraph {
 public:
  FeaturedGraph(const std::shared_ptr<const Graph>& graph, MadeFeatures features)
      : DerivedGraph(graph, SummaryWith(features, graph->summary())) {}

  absl::Status Make(MadeFeatures features) {
    const uint64_t nodes = view_.nodes;
    if (features == MadeFeatures::kConstant) {
      ones_.assign(nodes, 1.0F);
      DenseFeatures dense{.type = DataType::kFloat32, .width = 1, .bytes = {}, .groups = {}, .scales = {}};
      dense.bytes = Column<std::byte>(std::as_bytes(std::span<const float>(ones_)));
      view_.node_features = dense;
      return absl::OkStatus();
    }
    offsets_.resize(nodes + 1);
    std::iota(offsets_.begin(), offsets_.end(), uint64_t{0});
    columns_.resize(nodes);
    if (features == MadeFeatures::kOwnColumn) {
      std::iota(columns_.begin(), columns_.end(), uint32_t{0});
    } else {
      const Column<uint64_t>& in = view_.in.offsets;
      if (!in.Touch(0, nodes + 1)) return in.status();
      const auto last = static_cast<uint64_t>(summary_.node_features.width - 1);
      for (uint64_t v = 0; v < nodes; ++v) {
        columns_[v] = static_cast<uint32_t>(std::min(in[v + 1] - std::min(in[v], in[v + 1]), last));
      }
      PF_RETURN_IF_ERROR(graph_->CheckIntact());
    }
    view_.node_features = SparseFeatures{.width = summary_.node_features.width,
                                         .offsets = Column<uint64_t>(offsets_),
                                         .columns = Column<uint32_t>(columns_),
                                         .values = {}};
    return absl::OkStatus();
  }

  // Features made in memory are in no file.
  std::optional<StoredRows> stored_features() const override { return std::nullopt; }

 private:
  std::vector<float> ones_;
  std::vector<uint64_t> offsets_;
  std::vector<uint32_t> columns_;
};

}  // namespace

GraphSummary SummaryWith(MadeFeatures features, GraphSummary summary) {
  FeatureSummary made;
  const bool dense = features == MadeFeatures::kConstant;
  made.type = dense ? DataType::kFloat32 : DataType::kSparse;
  made.width = features == MadeFeatures::kOwnColumn   ? summary.nodes
               : dense                                ? 1
               : features == MadeFeatures::kOwnDegree ? std::min(summary.max_degree, kDegreeCap) + 1
                                                      : kDegreeCap + 1;
  summary.node_features = std::move(made);
  summary.node_feature_nonzeros = dense ? 0 : summary.nodes;
  return summary;
}

absl::StatusOr<std::shared_ptr<const Graph>> WithFeatures(const std::shared_ptr<const Graph>& graph,
                                                          MadeFeatures features) {
  auto featured = std::make_shared<FeaturedGraph>(graph, features);
  PF_RETURN_IF_ERROR(featured->Make(features));
  return featured;
}

namespace {

class FeaturedSet final : public DerivedSet {
 public:
  FeaturedSet(std::shared_ptr<const GraphSet> set, MadeFeatures features, GraphSetSummary summary, uint64_t checksum)
      : DerivedSet(std::move(set), std::move(summary), checksum), features_(features) {}

  absl::Status Make() {
    const auto nodes = static_cast<size_t>(summary_.all.nodes);
    if (features_ == MadeFeatures::kConstant) {
      ones_.assign(nodes, 1.0F);
      return absl::OkStatus();
    }
    PF_ASSIGN_OR_RETURN(const auto first_nodes, node_offsets());
    PF_ASSIGN_OR_RETURN(const auto first_edges, edge_offsets());
    PF_ASSIGN_OR_RETURN(const auto targets, edge_target());
    degrees_.resize(nodes);
    // Until CheckIntact() returns Ok, the columns may hold any values.
    for (size_t graph = 0; graph + 1 < first_nodes.size(); ++graph) {
      const size_t first = first_nodes[graph];
      const size_t end = std::min<size_t>(first_edges[graph + 1], targets.size());
      for (size_t edge = first_edges[graph]; edge < end; ++edge) {
        const size_t node = first + targets[edge];
        if (node < nodes) degrees_[node] = std::min(degrees_[node] + 1, static_cast<int32_t>(kDegreeCap));
      }
    }
    return CheckIntact();
  }

  absl::StatusOr<FeatureTable> node_features() const override {
    return FeatureTable{.type = summary_.node_features.type, .width = 1, .ints = degrees_, .floats = ones_};
  }

 private:
  const MadeFeatures features_;
  std::vector<int32_t> degrees_;
  std::vector<float> ones_;
};

}  // namespace

GraphSetSummary SummaryWith(MadeFeatures features, GraphSetSummary summary) {
  const bool constant = features == MadeFeatures::kConstant;
  FeatureSummary made;
  made.type = constant ? DataType::kFloat32 : DataType::kInt32;
  made.width = 1;
  made.min = {constant ? 1.0 : 0.0};
  made.max = {constant ? 1.0 : static_cast<double>(kDegreeCap)};
  summary.node_features = std::move(made);
  summary.node_feature_origin = constant ? "constant" : "degree";
  return summary;
}

absl::StatusOr<std::shared_ptr<const GraphSet>> WithFeatures(std::shared_ptr<const GraphSet> set,
                                                             MadeFeatures features) {
  const uint64_t identity[] = {set->checksum(), static_cast<uint64_t>(features)};
  GraphSetSummary summary = SummaryWith(features, set->summary());
  auto featured =
      std::make_shared<FeaturedSet>(std::move(set), features, std::move(summary), Hash64(identity, sizeof(identity)));
  PF_RETURN_IF_ERROR(featured->Make());
  return featured;
}

namespace {

// Counts the rows of each unknown value. Call Take for each row, with its category.
class UnknownCounts {
 public:
  UnknownCounts(const CategoryTable& own, const CategoryMap& map) {
    for (const int64_t value : map.unknown_values()) {
      rows_.emplace_back(value, 0);
      if (const auto category = own.CategoryOf(value)) places_.emplace(*category, rows_.size() - 1);
    }
  }
  void Take(int64_t category) {
    if (const auto found = places_.find(category); found != places_.end()) ++rows_[found->second].second;
  }
  CountedValues Finish() && {
    // The table may list values that no row has any more. They do not count as unknown.
    std::erase_if(rows_, [](const auto& row) { return row.second == 0; });
    return std::move(rows_);
  }

 private:
  CountedValues rows_;
  std::unordered_map<int64_t, size_t> places_;
};

// Returns the index, among the table's one-hot columns, of the column that is set in a row. Returns -1 if none is
// set.
int64_t HotColumn(std::span<const float> row, const CategoryTable& table) {
  for (int64_t c = 0; c < table.columns; ++c) {
    if (row[static_cast<size_t>(table.column + c)] != 0) return c;
  }
  return -1;
}

// Returns the columns that belong to no table, in their order.
std::vector<int64_t> PlainColumns(const FeatureCategories& features) {
  std::vector<int64_t> plain;
  size_t next = 0;
  for (int64_t column = 0; column < features.width;) {
    if (next < features.tables.size() && features.tables[next].column == column) {
      column += std::max<int64_t>(features.tables[next++].columns, 1);
    } else {
      plain.push_back(column++);
    }
  }
  return plain;
}

FeatureSummary SummaryOf(const FeatureTranslation& translation, const FeatureSummary& own) {
  const FeatureCategories& known = translation.known;
  FeatureSummary summary;
  summary.type = known.type;
  summary.width = known.width;
  summary.min.assign(static_cast<size_t>(known.width), 0);
  summary.max.assign(static_cast<size_t>(known.width), 1);
  for (size_t t = 0; t < known.tables.size(); ++t) {
    if (known.tables[t].one_hot()) continue;
    const bool unknown = t < translation.maps.size() && !translation.maps[t].unknown_values().empty();
    summary.max[static_cast<size_t>(known.tables[t].column)] =
        static_cast<double>(known.tables[t].num_categories() - (unknown ? 0 : 1));
  }
  const std::vector<int64_t> from = PlainColumns(translation.own), to = PlainColumns(known);
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    const auto at = static_cast<size_t>(from[i]);
    if (at >= own.min.size() || at >= own.max.size()) continue;
    summary.min[static_cast<size_t>(to[i])] = own.min[at];
    summary.max[static_cast<size_t>(to[i])] = own.max[at];
  }
  return summary;
}

// Translates labels to other classes. Adds to `missing` the number of labels that become missing.
std::vector<float> LabelsOf(std::span<const float> own, const CategoryMap& map, int64_t& missing) {
  std::vector<float> labels;
  labels.reserve(own.size());
  for (const float label : own) {
    const int64_t category = std::isnan(label) ? map.unknown() : map.To(static_cast<int64_t>(label));
    const bool known = category != map.unknown();
    missing += !std::isnan(label) && !known;
    labels.push_back(known ? static_cast<float>(category) : std::numeric_limits<float>::quiet_NaN());
  }
  return labels;
}

// Sets the summary's facts about labels. Works for both kinds of summary.
template <class Summary>
void TakeClasses(const Translation::OfClasses& classes, Summary& summary) {
  summary.integer_labels = true;
  summary.min_label = 0;
  summary.max_label = static_cast<double>(classes.known.num_categories() - 1);
}

class TranslatedSet final : public DerivedSet {
 public:
  TranslatedSet(std::shared_ptr<const GraphSet> set, Translation translation, uint64_t checksum)
      : DerivedSet(set, set->summary(), checksum), translation_(std::move(translation)) {}

  absl::Status Make() {
    if (translation_.node) {
      PF_ASSIGN_OR_RETURN(const FeatureTable own, set_->node_features());
      MakeTable(*translation_.node, own, node_);
      summary_.node_features = SummaryOf(*translation_.node, summary_.node_features);
    }
    if (translation_.edge) {
      PF_ASSIGN_OR_RETURN(const FeatureTable own, set_->edge_features());
      MakeTable(*translation_.edge, own, edge_);
      summary_.edge_features = SummaryOf(*translation_.edge, summary_.edge_features);
    }
    if (const auto& classes = translation_.classes) {
      PF_ASSIGN_OR_RETURN(const auto own, set_->labels());
      if (!classes->map.as_they_stand()) labels_ = LabelsOf(own, classes->map, summary_.num_missing_labels);
      TakeClasses(*classes, summary_);
      summary_.class_values = classes->known.ranked ? classes->known.values : std::vector<int64_t>();
    }
    return CheckIntact();
  }

  absl::StatusOr<FeatureTable> node_features() const override {
    return translation_.node ? TableOf(*translation_.node, node_, set_->node_features()) : set_->node_features();
  }
  absl::StatusOr<FeatureTable> edge_features() const override {
    return translation_.edge ? TableOf(*translation_.edge, edge_, set_->edge_features()) : set_->edge_features();
  }
  absl::StatusOr<std::span<const float>> labels() const override {
    if (labels_) return std::span<const float>(*labels_);
    return set_->labels();
  }

 private:
  struct Made {
    std::vector<int32_t> ints;
    std::vector<float> floats;
  };

  static void MakeTable(const FeatureTranslation& translation, const FeatureTable& own, Made& made) {
    if (translation.as_it_stands()) return;
    const auto from = static_cast<size_t>(translation.own.width), to = static_cast<size_t>(translation.known.width);
    const std::vector<CategoryMap>& maps = translation.maps;
    if (translation.known.type == DataType::kInt32) {
      made.ints.resize(own.ints.size());
      for (size_t i = 0; i < made.ints.size(); ++i) made.ints[i] = static_cast<int32_t>(maps[i % to].To(own.ints[i]));
      return;
    }
    const size_t rows = from == 0 ? 0 : own.floats.size() / from;
    made.floats.resize(rows * to);
    const std::vector<int64_t> plain_from = PlainColumns(translation.own), plain_to = PlainColumns(translation.known);
    for (size_t row = 0; row < rows; ++row) {
      const std::span<const float> in = own.floats.subspan(row * from, from);
      const std::span<float> out = std::span(made.floats).subspan(row * to, to);
      for (size_t i = 0; i < plain_to.size(); ++i) {
        out[static_cast<size_t>(plain_to[i])] = in[static_cast<size_t>(plain_from[i])];
      }
      for (size_t t = 0; t < maps.size(); ++t) {
        const int64_t hot = HotColumn(in, translation.own.tables[t]);
        const CategoryTable& known = translation.known.tables[t];
        const int64_t category = hot < 0 ? known.columns : maps[t].To(hot);
        if (category < known.columns) out[static_cast<size_t>(known.column + category)] = 1;
      }
    }
  }

  static absl::StatusOr<FeatureTable> TableOf(const FeatureTranslation& translation, const Made& made,
                                              absl::StatusOr<FeatureTable> own) {
    if (!own.ok()) return own;
    const bool stands = translation.as_it_stands();
    return FeatureTable{.type = translation.known.type,
                        .width = translation.known.width,
                        .ints = stands ? own->ints : std::span<const int32_t>(made.ints),
                        .floats = stands ? own->floats : std::span<const float>(made.floats)};
  }

  const Translation translation_;
  Made node_, edge_;
  std::optional<std::vector<float>> labels_;
};

class TranslatedGraph final : public DerivedGraph {
 public:
  TranslatedGraph(std::shared_ptr<const Graph> graph, Translation translation)
      : DerivedGraph(std::move(graph)), translation_(std::move(translation)) {}

  absl::Status Make() {
    if (translation_.edge) {
      summary_.edge_features = SummaryOf(*translation_.edge, summary_.edge_features);
      if (view_.edge_features.bytes.empty()) {
        view_.edge_features.type = translation_.edge->known.type;
        view_.edge_features.width = translation_.edge->known.width;
      } else if (!translation_.edge->as_it_stands()) {
        view_.edge_categories = &translation_.edge->maps;
      }
    }
    if (const auto& classes = translation_.classes) {
      if (!classes->map.as_they_stand()) {
        const Column<float>& own = view_.labels;
        if (!own.Touch(0, own.size())) return own.status();
        labels_ = LabelsOf({own.data(), own.size()}, classes->map, summary_.num_missing_labels);
        view_.labels = Column<float>(labels_);
      }
      TakeClasses(*classes, summary_);
    }
    return CheckIntact();
  }

 private:
  const Translation translation_;
  std::vector<float> labels_;
};

}  // namespace

bool FeatureTranslation::as_it_stands() const {
  if (own.type != known.type || own.width != known.width) return false;
  for (size_t t = 0; t < maps.size(); ++t) {
    if (!maps[t].as_they_stand() || own.tables[t].columns != known.tables[t].columns) return false;
  }
  return true;
}

absl::StatusOr<CountedValues> CountUnknown(const GraphSet& set, bool of_edges, const FeatureTranslation& translation,
                                           size_t table) {
  const CategoryTable& own = translation.own.tables[table];
  UnknownCounts counts(own, translation.maps[table]);
  PF_ASSIGN_OR_RETURN(const FeatureTable features, of_edges ? set.edge_features() : set.node_features());
  const auto width = static_cast<size_t>(features.width);
  if (own.one_hot()) {
    for (size_t at = 0; at + width <= features.floats.size(); at += width) {
      counts.Take(HotColumn(features.floats.subspan(at, width), own));
    }
  } else {
    for (auto at = static_cast<size_t>(own.column); at < features.ints.size(); at += width) {
      counts.Take(features.ints[at]);
    }
  }
  PF_RETURN_IF_ERROR(set.CheckIntact());
  return std::move(counts).Finish();
}

absl::StatusOr<CountedValues> CountUnknown(const Graph& graph, const FeatureTranslation& translation, size_t table) {
  UnknownCounts counts(translation.own.tables[table], translation.maps[table]);
  // Counts the rows as stored, not the edges, since two edges may share a row.
  const DenseFeatures& features = graph.view().edge_features;
  const uint64_t row_bytes = features.row_bytes();
  for (uint64_t row = 0; row < features.bytes.size() / row_bytes; ++row) {
    const uint64_t begin = features.OffsetOf(row);
    if (!features.bytes.Touch(begin, begin + row_bytes)) return features.bytes.status();
    counts.Take(CategoryAt(features.type, features.bytes.data() + begin, translation.own.tables[table].column));
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return std::move(counts).Finish();
}

absl::StatusOr<CountedValues> CountUnknownClasses(const GraphSet& set, const CategoryTable& own,
                                                  const CategoryMap& map) {
  UnknownCounts counts(own, map);
  PF_ASSIGN_OR_RETURN(const auto labels, set.labels());
  for (const float label : labels) {
    if (!std::isnan(label)) counts.Take(static_cast<int64_t>(label));
  }
  PF_RETURN_IF_ERROR(set.CheckIntact());
  return std::move(counts).Finish();
}

absl::StatusOr<CountedValues> CountUnknownClasses(const Graph& graph, const CategoryTable& own,
                                                  const CategoryMap& map) {
  UnknownCounts counts(own, map);
  const Column<float>& labels = graph.view().labels;
  if (!labels.Touch(0, labels.size())) return labels.status();
  for (uint64_t i = 0; i < labels.size(); ++i) {
    if (!std::isnan(labels[i])) counts.Take(static_cast<int64_t>(labels[i]));
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return std::move(counts).Finish();
}

absl::StatusOr<std::shared_ptr<const GraphSet>> Translate(std::shared_ptr<const GraphSet> set,
                                                          Translation translation) {
  constexpr uint64_t kTranslated = 0x7472616e736c6174;
  const uint64_t identity[] = {set->checksum(), kTranslated};
  auto translated =
      std::make_shared<TranslatedSet>(std::move(set), std::move(translation), Hash64(identity, sizeof(identity)));
  PF_RETURN_IF_ERROR(translated->Make());
  return translated;
}

absl::StatusOr<std::shared_ptr<const Graph>> Translate(std::shared_ptr<const Graph> graph, Translation translation) {
  auto translated = std::make_shared<TranslatedGraph>(std::move(graph), std::move(translation));
  PF_RETURN_IF_ERROR(translated->Make());
  return translated;
}

uint64_t BytesOf(const GraphSet& set, const Translation& translation) {
  const SizeStatistics& all = set.summary().all;
  uint64_t values = 0;
  for (const auto& [features, rows] :
       {std::pair(&translation.node, all.nodes), std::pair(&translation.edge, all.edges)}) {
    if (*features && !(*features)->as_it_stands()) values += static_cast<uint64_t>(rows * (*features)->known.width);
  }
  if (translation.classes) values += static_cast<uint64_t>(all.graphs);
  return values * sizeof(float);
}

}  // namespace permafrost::data
