#include "data/store/graph.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/float_conversion.h"
#include "data/store/format.h"
#include "data/store/store_file.h"
#include "data/store/store_sections.h"

namespace permafrost::data {
namespace {

using K = SectionKind;

class MappedGraph final : public Graph {
 public:
  explicit MappedGraph(std::unique_ptr<StoreFile> file) : file_(std::move(file)) {}

  // Checks the summary and the section table, and makes the columns. Errors do not name the file.
  absl::Status Init(std::string_view summary) {
    PF_RETURN_IF_ERROR(ReadSummary(summary));
    view_.nodes = file_->header().nodes;
    view_.edges = file_->header().edges;
    view_.in = {.offsets = MakeColumn<uint64_t>(K::kInOffsets),
                .neighbors = MakeColumn<NodeId>(K::kInNeighbors),
                .weights = MakeColumn<float>(K::kInWeights),
                .timestamps = MakeColumn<int64_t>(K::kInTimestamps),
                .edge_ids = MakeColumn<uint64_t>(K::kInEdgeIds)};
    view_.out = summary_.symmetric ? view_.in
                                   : Adjacency{.offsets = MakeColumn<uint64_t>(K::kOutOffsets),
                                               .neighbors = MakeColumn<NodeId>(K::kOutNeighbors),
                                               .weights = MakeColumn<float>(K::kOutWeights),
                                               .timestamps = MakeColumn<int64_t>(K::kOutTimestamps),
                                               .edge_ids = MakeColumn<uint64_t>(K::kOutEdgeIds)};
    if (summary_.node_features.type == DataType::kSparse) {
      view_.node_features = SparseFeatures{.width = summary_.node_features.width,
                                           .offsets = MakeColumn<uint64_t>(K::kNodeFeatureOffsets),
                                           .columns = MakeColumn<uint32_t>(K::kNodeFeatureColumns),
                                           .values = MakeColumn<float>(K::kNodeFeatureValues)};
    } else if (summary_.node_features.type != DataType::kNone) {
      DenseFeatures dense = MakeDense(K::kNodeFeatures, summary_.node_features);
      dense.scales = MakeColumn<float>(K::kNodeFeatureScales);
      view_.node_features = dense;
    }
    if (summary_.position_columns > 0) {
      view_.positions = MakeDense(K::kPositions, {.type = DataType::kFloat32, .width = summary_.position_columns});
    }
    view_.edge_features = MakeDense(K::kEdgeFeatures, summary_.edge_features);
    view_.num_targets = summary_.num_targets;
    view_.labels = MakeColumn<float>(K::kLabels);
    view_.times = MakeColumn<int64_t>(K::kNodeTimes);
    view_.splits = {MakeColumn<NodeId>(K::kTrainNodes), MakeColumn<NodeId>(K::kValidNodes),
                    MakeColumn<NodeId>(K::kTestNodes)};
    view_.given_links = {
        .links = {MakeColumn<NodeId>(K::kTrainLinks), MakeColumn<NodeId>(K::kValidLinks),
                  MakeColumn<NodeId>(K::kTestLinks)},
        .negatives = {Column<NodeId>(), MakeColumn<NodeId>(K::kValidNegatives), MakeColumn<NodeId>(K::kTestNegatives)}};
    names_ = {.numbers = MakeColumn<uint64_t>(K::kNodeNumbers),
              .offsets = MakeColumn<uint64_t>(K::kNodeNameOffsets),
              .text = MakeColumn<char>(K::kNodeNameText)};
    return absl::OkStatus();
  }

  const GraphSummary& summary() const override { return summary_; }
  const GraphView& view() const override { return view_; }
  const NodeNames& names() const override { return names_; }

  absl::Status CheckIntact() const override {
    PF_RETURN_IF_ERROR(file_->CheckIntact());
    for (const auto& guard : guards_) PF_RETURN_IF_ERROR(guard->status());
    return absl::OkStatus();
  }
  absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const override {
    return file_->VerifyAll([this](const StoreFile::Section& section) { return CheckOf(section); }, progress);
  }
  uint64_t mapped_bytes() const override { return file_->size(); }
  std::filesystem::path path() const override { return file_->path(); }
  absl::StatusOr<std::optional<Categories>> categories() const override {
    if (!summary_.categories_known) return std::optional<Categories>();
    const FeatureSummary &node = summary_.node_features, &edge = summary_.edge_features;
    PF_ASSIGN_OR_RETURN(Categories categories, ReadCategories(*file_, {.node = {node.type, node.width, {}},
                                                                       .edge = {edge.type, edge.width, {}},
                                                                       .classes = std::nullopt}));
    return std::optional(std::move(categories));
  }
  uint64_t checksum() const override { return file_->header().checksum; }
  uint64_t content_checksum() const override { return file_->ContentChecksum(); }
  uint64_t names_checksum() const override { return file_->NamesChecksum(); }
  std::optional<StoredRows> stored_features() const override {
    const StoreFile::Section* section = file_->Find(K::kNodeFeatures);
    if (section == nullptr || section->block_bytes != kPageBytes) return std::nullopt;
    return StoredRows{.path = file_->path(),
                      .offset = section->entry.offset,
                      .bytes = section->entry.bytes,
                      .rows = section->entry.rows,
                      .row_bytes = section->entry.width * ElementBytes(section->entry.type),
                      .groups = section->entry.groups,
                      .page_checksums = section->checksums};
  }

 private:
  absl::Status ReadSummary(std::string_view text) {
    PF_ASSIGN_OR_RETURN(summary_, GraphSummaryFromJson(text));

    const FileHeader& header = file_->header();
    const struct {
      std::string_view field;
      int64_t is;
      uint64_t want;
    } kCounts[] = {{"nodes", summary_.nodes, header.nodes},
                   {"edges", summary_.edges, header.edges},
                   {"num_targets", summary_.num_targets, header.targets}};
    for (const auto& c : kCounts) {
      if (!std::in_range<uint64_t>(c.is) || static_cast<uint64_t>(c.is) != c.want) {
        return Mismatch(SectionField(K::kSummary, c.field), c.is, absl::StrCat("the header's ", c.want));
      }
    }
    if (header.graphs != 1) return Mismatch("graphs", header.graphs, 1);
    std::vector<SectionEntry> entries;
    for (const StoreFile::Section& s : file_->sections()) entries.push_back(s.entry);
    PF_RETURN_IF_ERROR(CheckGraphSections(summary_, entries));
    summary_.adjacency_bytes = AdjacencyBytes(entries);
    summary_.store_bytes = file_->size();
    return absl::OkStatus();
  }

  uint64_t RowsOf(K kind) const {
    const StoreFile::Section* section = file_->Find(kind);
    return section == nullptr ? 0 : section->entry.rows;
  }

  BlockGuard::ContentCheck CheckOf(const StoreFile::Section& section) const {
    const uint64_t nodes = file_->header().nodes, edges = file_->header().edges;
    switch (section.entry.kind) {
      case K::kInOffsets:
      case K::kOutOffsets:
        return OffsetsCheck(section.As<uint64_t>(), edges);
      case K::kNodeFeatureOffsets:
        return OffsetsCheck(section.As<uint64_t>(), RowsOf(K::kNodeFeatureColumns));
      case K::kNodeNameOffsets:
        return OffsetsCheck(section.As<uint64_t>(), RowsOf(K::kNodeNameText));
      case K::kInNeighbors:
      case K::kOutNeighbors:
        return BelowCheck(section.As<uint32_t>(), nodes, "node of edge");
      case K::kTrainNodes:
      case K::kValidNodes:
      case K::kTestNodes:
      case K::kTrainLinks:
      case K::kValidLinks:
      case K::kTestLinks:
      case K::kValidNegatives:
      case K::kTestNegatives:
        return BelowCheck(section.As<uint32_t>(), nodes, "node");
      case K::kInEdgeIds:
      case K::kOutEdgeIds:
        return BelowCheck(section.As<uint64_t>(), file_->Find(K::kEdgeFeatures) ? RowsOf(K::kEdgeFeatures) : edges,
                          "row of edge");
      case K::kNodeFeatureColumns:
        return BelowCheck(section.As<uint32_t>(), static_cast<uint64_t>(summary_.node_features.width), "column");
      default:
        return nullptr;
    }
  }

  template <class T>
  Column<T> MakeColumn(K kind) {
    const StoreFile::Section* section = file_->Find(kind);
    if (section == nullptr) return Column<T>();
    guards_.push_back(file_->Guard(*section, CheckOf(*section)));
    return Column<T>(section->As<T>(), guards_.back().get());
  }

  DenseFeatures MakeDense(K kind, const FeatureSummary& features) {
    const StoreFile::Section* section = file_->Find(kind);
    return {.type = features.type,
            .width = features.width,
            .bytes = MakeColumn<std::byte>(kind),
            .groups = section == nullptr ? RowGroups() : section->entry.groups};
  }

  const std::unique_ptr<StoreFile> file_;
  GraphSummary summary_;
  std::vector<std::unique_ptr<BlockGuard>> guards_;
  GraphView view_;
  NodeNames names_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Graph>> Graph::Open(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kFileName;
  PF_ASSIGN_OR_RETURN(auto file, StoreFile::Open(path, StoreLayout::kGraph, MappedFile::Access::kRandom));
  PF_ASSIGN_OR_RETURN(const std::string_view summary, file->ReadSummary());
  auto graph = std::make_shared<MappedGraph>(std::move(file));
  const absl::Status status = graph->Init(summary);
  PF_RETURN_IF_ERROR(graph->CheckIntact());
  if (!status.ok()) return Annotate(status, path.string());
  return graph;
}

absl::Status ReadRows(const DenseFeatures& features, uint64_t begin, uint64_t end, float* out) {
  if (begin >= end) return absl::OkStatus();
  if (!features.scales.Touch(0, features.scales.size())) return features.scales.status();
  // Advises the kernel to load the whole range at once. Blocks may be single pages, so Touch alone would read one
  // page at a time.
  AdviseWillNeed(features.bytes.Reads(features.OffsetOf(begin), features.OffsetOf(end - 1) + features.row_bytes()));
  if (!features.bytes.Touch(features.OffsetOf(begin), features.OffsetOf(end - 1) + features.row_bytes())) {
    return features.bytes.status();
  }
  for (uint64_t row = begin, next; row < end; row = next) {
    // There is one scale for each column, so ToFloat can convert only one row at a time.
    const uint64_t group = features.type == DataType::kInt8 ? 1 : features.groups.rows;
    next = group == 0 ? end : std::min(end, row - row % group + group);
    const auto count = static_cast<int64_t>(next - row) * features.width;
    ToFloat(features.type, features.bytes.data() + features.OffsetOf(row), count, out, features.scales.data());
    out += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<SparseRows> ReadRows(const SparseFeatures& features, uint64_t begin, uint64_t end) {
  SparseRows rows;
  if (!features.offsets.Touch(begin, end + 1)) return features.offsets.status();
  const uint64_t entries = features.columns.size(), first = std::min(features.offsets[begin], entries);
  // Forces the offsets to rise and to stay within the columns, since the file may change while it is read.
  uint64_t last = first;
  for (uint64_t row = begin; row <= end; ++row) {
    last = std::clamp(features.offsets[row], last, entries);
    rows.offsets.push_back(static_cast<int64_t>(last - first));
  }
  if (!features.columns.Touch(first, last)) return features.columns.status();
  rows.columns.assign(features.columns.data() + first, features.columns.data() + last);
  const auto widest = static_cast<uint32_t>(std::max<int64_t>(features.width, 1) - 1);
  for (uint32_t& column : rows.columns) column = std::min(column, widest);
  if (!features.values.empty()) {
    if (!features.values.Touch(first, last)) return features.values.status();
    rows.values.assign(features.values.data() + first, features.values.data() + last);
  }
  return rows;
}

namespace {

// Returns the name of a row as text, or nullopt if the text cannot be read.
std::optional<std::string_view> TextOf(const NodeNames& names, NodeId row) {
  if (!names.offsets.Touch(row, uint64_t{row} + 2)) return std::nullopt;
  const uint64_t begin = std::min(names.offsets[row], names.text.size());
  const uint64_t end = std::clamp(names.offsets[uint64_t{row} + 1], begin, names.text.size());
  if (!names.text.Touch(begin, end)) return std::nullopt;
  return std::string_view(names.text.data() + begin, end - begin);
}

absl::Status Damage(const NodeNames& names) {
  for (const absl::Status& status : {names.numbers.status(), names.offsets.status(), names.text.status()}) {
    PF_RETURN_IF_ERROR(status);
  }
  return absl::DataLossError("the graph's node names cannot be read");
}

// Calls found(row, places) for each row whose name is a key of `wanted`. `places` is the value of the key.
template <class Found>
absl::Status ForEachNamed(const Graph& graph, const std::unordered_map<std::string_view, std::vector<size_t>>& wanted,
                          const Found& found) {
  const NodeNames& names = graph.names();
  const uint64_t nodes = graph.view().nodes;
  if (names.numbers.empty() && names.offsets.empty()) {
    for (const auto& [name, places] : wanted) {
      uint32_t row = 0;
      if (absl::SimpleAtoi(AbslView(name), &row) && row < nodes) found(row, places);
    }
    return absl::OkStatus();
  }
  std::unordered_map<uint64_t, const std::vector<size_t>*> numbers;
  for (const auto& [name, places] : wanted) {
    uint64_t number = 0;
    if (absl::SimpleAtoi(AbslView(name), &number)) numbers.emplace(number, &places);
  }
  for (uint64_t row = 0; row < nodes; ++row) {
    const auto id = static_cast<NodeId>(row);
    if (!names.numbers.empty()) {
      if (!names.numbers.Touch(row, row + 1)) return Damage(names);
      if (const auto it = numbers.find(names.numbers[row]); it != numbers.end()) found(id, *it->second);
      continue;
    }
    const auto text = TextOf(names, id);
    if (!text) return Damage(names);
    if (const auto it = wanted.find(*text); it != wanted.end()) found(id, it->second);
  }
  return absl::OkStatus();
}

bool HasText(const NodeNames& names) { return names.numbers.empty() && !names.offsets.empty(); }

// A row and the key of its name. The key is the name itself if names are numbers, else a hash of the name. Equal
// names have equal keys.
struct KeyedRow {
  uint64_t key = 0;
  NodeId row = 0;
  auto operator<=>(const KeyedRow&) const = default;
};

absl::StatusOr<uint64_t> KeyOf(const NodeNames& names, NodeId row, bool as_text) {
  if (as_text) {
    PF_ASSIGN_OR_RETURN(const std::string name, NameOf(names, row));
    return Hash64(name);
  }
  if (names.numbers.empty()) return row;
  if (!names.numbers.Touch(row, uint64_t{row} + 1)) return Damage(names);
  return names.numbers[row];
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> MatchNames(const Graph& from, const Graph& to) {
  const bool as_text = HasText(from.names()) || HasText(to.names());
  std::vector<KeyedRow> known(from.view().nodes);
  for (uint64_t row = 0; row < known.size(); ++row) {
    const auto id = static_cast<NodeId>(row);
    PF_ASSIGN_OR_RETURN(const uint64_t key, KeyOf(from.names(), id, as_text));
    known[row] = {key, id};
  }
  std::ranges::sort(known);
  std::vector<int64_t> rows(to.view().nodes, kNoRow);
  for (uint64_t row = 0; row < rows.size(); ++row) {
    const auto id = static_cast<NodeId>(row);
    PF_ASSIGN_OR_RETURN(const uint64_t key, KeyOf(to.names(), id, as_text));
    auto found = std::ranges::lower_bound(known, key, {}, &KeyedRow::key);
    for (; found != known.end() && found->key == key && rows[row] == kNoRow; ++found) {
      if (as_text) {
        PF_ASSIGN_OR_RETURN(const std::string a, NameOf(from.names(), found->row));
        PF_ASSIGN_OR_RETURN(const std::string b, NameOf(to.names(), id));
        if (a != b) continue;
      }
      rows[row] = found->row;
    }
  }
  PF_RETURN_IF_ERROR(from.CheckIntact());
  PF_RETURN_IF_ERROR(to.CheckIntact());
  return rows;
}

absl::StatusOr<std::string> NameOf(const NodeNames& names, NodeId row) {
  if (!names.numbers.empty()) {
    if (!names.numbers.Touch(row, uint64_t{row} + 1)) return Damage(names);
    return std::to_string(names.numbers[row]);
  }
  if (names.offsets.empty()) return std::to_string(row);
  const auto text = TextOf(names, row);
  if (!text) return Damage(names);
  return std::string(*text);
}

absl::StatusOr<std::vector<NodeId>> FindNames(const Graph& graph, std::span<const std::string> wanted) {
  std::unordered_map<std::string_view, std::vector<size_t>> places;
  for (size_t i = 0; i < wanted.size(); ++i) places[wanted[i]].push_back(i);
  std::vector<NodeId> rows(wanted.size());
  std::vector<bool> known(wanted.size());
  PF_RETURN_IF_ERROR(ForEachNamed(graph, places, [&](NodeId row, const std::vector<size_t>& of_name) {
    for (const size_t i : of_name) {
      rows[i] = row;
      known[i] = true;
    }
  }));
  Violations violations;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (known[i]) continue;
    violations.Add(absl::StrCat("names[", i, "]"),
                   absl::StrCat("'", wanted[i], "' is none of the graph's ", graph.view().nodes, " nodes"));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return rows;
}

}  // namespace permafrost::data
