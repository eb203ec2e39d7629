#include "data/store/graph_set.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/block_guard.h"
#include "data/store/format.h"
#include "data/store/store_file.h"
#include "data/store/store_sections.h"

namespace permafrost::data {
namespace {

constexpr SectionKind KindOf(Split split) {
  return static_cast<SectionKind>(static_cast<uint32_t>(SectionKind::kTrainGraphs) + static_cast<uint32_t>(split));
}

constexpr bool IsOfCategories(SectionKind kind) {
  return kind == SectionKind::kNumberedCategories || kind == SectionKind::kSeenCategories;
}

class MappedGraphSet final : public GraphSet {
 public:
  explicit MappedGraphSet(std::unique_ptr<StoreFile> file) : file_(std::move(file)), header_(file_->header()) {}

  // Checks the section table and the summary. Errors do not name the file.
  absl::Status Init(std::string_view summary) {
    // Graph ids are uint32; the bound also keeps graphs + 1 from wrapping.
    if (header_.graphs > UINT32_MAX) return Mismatch("graphs", header_.graphs, absl::StrCat("at most ", UINT32_MAX));
    PF_RETURN_IF_ERROR(FindSections());
    return ReadSummary(summary);
  }

  const GraphSetSummary& summary() const override { return summary_; }
  uint64_t checksum() const override { return header_.checksum; }
  uint64_t content_checksum() const override { return file_->ContentChecksum(); }

  absl::StatusOr<std::span<const uint64_t>> node_offsets() const override {
    return Verified<uint64_t>(SectionKind::kNodeOffsets,
                              [this](std::span<const uint64_t> o) { return CheckOffsets(o, header_.nodes); });
  }
  absl::StatusOr<std::span<const uint64_t>> edge_offsets() const override {
    return Verified<uint64_t>(SectionKind::kEdgeOffsets,
                              [this](std::span<const uint64_t> o) { return CheckOffsets(o, header_.edges); });
  }
  absl::StatusOr<std::span<const uint32_t>> edge_source() const override {
    return EdgeEnds(SectionKind::kEdgeSource, false);
  }
  absl::StatusOr<std::span<const uint32_t>> edge_target() const override {
    return EdgeEnds(SectionKind::kEdgeTarget, true);
  }
  absl::StatusOr<FeatureTable> node_features() const override { return Features(SectionKind::kNodeFeatures); }
  absl::StatusOr<FeatureTable> edge_features() const override { return Features(SectionKind::kEdgeFeatures); }
  absl::StatusOr<FeatureTable> positions() const override { return Features(SectionKind::kPositions); }
  absl::StatusOr<std::span<const float>> labels() const override { return Verified<float>(SectionKind::kLabels); }
  absl::StatusOr<std::span<const uint32_t>> split(Split split) const override {
    return Verified<uint32_t>(KindOf(split), [this](std::span<const uint32_t> ids) { return CheckGraphIds(ids); });
  }
  absl::StatusOr<std::optional<Categories>> categories() const override {
    if (!summary_.categories_known) return std::optional<Categories>();
    const FeatureSummary &node = summary_.node_features, &edge = summary_.edge_features;
    PF_ASSIGN_OR_RETURN(Categories categories, ReadCategories(*file_, {.node = {node.type, node.width, {}},
                                                                       .edge = {edge.type, edge.width, {}},
                                                                       .classes = std::nullopt}));
    return std::optional(std::move(categories));
  }
  absl::Status CheckIntact() const override { return file_->CheckIntact(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const override {
    PF_RETURN_IF_ERROR(file_->VerifyAll([](const StoreFile::Section&) { return nullptr; }, progress));
    PF_RETURN_IF_ERROR(node_offsets().status());
    PF_RETURN_IF_ERROR(edge_offsets().status());
    PF_RETURN_IF_ERROR(edge_source().status());
    PF_RETURN_IF_ERROR(edge_target().status());
    for (const auto& [split, name] : kSplitNames.rows) PF_RETURN_IF_ERROR(this->split(split).status());
    return CheckIntact();
  }
  uint64_t mapped_bytes() const override { return file_->size(); }
  std::filesystem::path path() const override { return file_->path(); }

 private:
  // A section's place in the file, and the result of verifying the section, which its first reader does.
  struct Section {
    const StoreFile::Section* place = nullptr;  // null if the section is absent
    std::unique_ptr<BlockGuard> guard;
    mutable absl::once_flag once;
    mutable absl::Status status;

    bool present() const { return place != nullptr; }
    uint64_t rows() const { return present() ? place->entry.rows : 0; }
    uint32_t width() const { return present() ? place->entry.width : 0; }
  };

  const Section& At(SectionKind kind) const { return sections_[static_cast<size_t>(kind) - 1]; }

  absl::Status FindSections() {
    for (const StoreFile::Section& place : file_->sections()) {
      PF_RETURN_IF_ERROR(CheckEntry(place.entry));
      // Only categories() reads these sections.
      if (IsOfCategories(place.entry.kind)) continue;
      Section& section = sections_[static_cast<size_t>(place.entry.kind) - 1];
      section.place = &place;
      section.guard = file_->Guard(place, nullptr);
    }
    for (size_t i = 0; i < kFirstKinds; ++i) {
      const auto kind = static_cast<SectionKind>(i + 1);
      const bool optional = kind == SectionKind::kNodeFeatures || kind == SectionKind::kEdgeFeatures;
      if (!optional && !At(kind).present()) return absl::DataLossError(SectionField(kind, "is missing"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckEntry(const SectionEntry& entry) const {
    const auto field = [&entry](std::string_view name) { return SectionField(entry.kind, name); };
    const auto check_type = [&](ElementType want) {
      return entry.type == want ? absl::OkStatus()
                                : Mismatch(field("type"), AbslView(kElementTypeNames.Name(entry.type)),
                                           AbslView(kElementTypeNames.Name(want)));
    };
    const auto check_number = [&](std::string_view name, uint64_t is, uint64_t want) {
      return is == want ? absl::OkStatus() : Mismatch(field(name), is, want);
    };
    switch (entry.kind) {
      case SectionKind::kSummary:
      case SectionKind::kNumberedCategories:
      case SectionKind::kSeenCategories:
        PF_RETURN_IF_ERROR(check_type(ElementType::kBytes));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, 1));
        break;
      case SectionKind::kNodeOffsets:
      case SectionKind::kEdgeOffsets:
        PF_RETURN_IF_ERROR(check_type(ElementType::kUint64));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, 1));
        PF_RETURN_IF_ERROR(check_number("rows", entry.rows, header_.graphs + 1));
        break;
      case SectionKind::kEdgeSource:
      case SectionKind::kEdgeTarget:
        PF_RETURN_IF_ERROR(check_type(ElementType::kUint32));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, 1));
        PF_RETURN_IF_ERROR(check_number("rows", entry.rows, header_.edges));
        break;
      case SectionKind::kNodeFeatures:
      case SectionKind::kEdgeFeatures:
        if (entry.type != ElementType::kInt32) PF_RETURN_IF_ERROR(check_type(ElementType::kFloat32));
        if (entry.width == 0) return Mismatch(field("width"), 0, "at least 1");
        PF_RETURN_IF_ERROR(
            check_number("rows", entry.rows, entry.kind == SectionKind::kNodeFeatures ? header_.nodes : header_.edges));
        break;
      case SectionKind::kPositions:
        PF_RETURN_IF_ERROR(check_type(ElementType::kFloat32));
        if (entry.width < 1 || entry.width > kMaxPositionColumns) {
          return Mismatch(field("width"), entry.width, absl::StrCat("1..", kMaxPositionColumns));
        }
        PF_RETURN_IF_ERROR(check_number("rows", entry.rows, header_.nodes));
        break;
      case SectionKind::kLabels:
        PF_RETURN_IF_ERROR(check_type(ElementType::kFloat32));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, header_.targets));
        PF_RETURN_IF_ERROR(check_number("rows", entry.rows, header_.targets == 0 ? 0 : header_.graphs));
        break;
      case SectionKind::kTrainGraphs:
      case SectionKind::kValidGraphs:
      case SectionKind::kTestGraphs:
        PF_RETURN_IF_ERROR(check_type(ElementType::kUint32));
        PF_RETURN_IF_ERROR(check_number("width", entry.width, 1));
        if (entry.rows > header_.graphs) {
          return Mismatch(field("rows"), entry.rows, absl::StrCat("at most ", header_.graphs));
        }
        break;
      default:
        return absl::DataLossError(SectionField(entry.kind, "has no place in the store of a set of graphs"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadSummary(std::string_view text) {
    auto parsed = SummaryFromJson(text);
    if (!parsed.ok()) return Annotate(parsed.status(), "section summary");
    summary_ = *std::move(parsed);
    summary_.store_bytes = file_->size();
    const struct {
      std::string_view field;
      int64_t is;
      uint64_t want;
    } kCounts[] = {
        {"all.graphs", summary_.all.graphs, header_.graphs},
        {"all.nodes", summary_.all.nodes, header_.nodes},
        {"all.edges", summary_.all.edges, header_.edges},
        {"num_targets", summary_.num_targets, header_.targets},
        {"node_features.width", summary_.node_features.width, At(SectionKind::kNodeFeatures).width()},
        {"edge_features.width", summary_.edge_features.width, At(SectionKind::kEdgeFeatures).width()},
        {"position_columns", summary_.position_columns, At(SectionKind::kPositions).width()},
        {"splits.train.graphs", summary_.splits[0].graphs, At(SectionKind::kTrainGraphs).rows()},
        {"splits.valid.graphs", summary_.splits[1].graphs, At(SectionKind::kValidGraphs).rows()},
        {"splits.test.graphs", summary_.splits[2].graphs, At(SectionKind::kTestGraphs).rows()},
    };
    for (const auto& c : kCounts) {
      if (!std::in_range<uint64_t>(c.is) || static_cast<uint64_t>(c.is) != c.want) {
        return Mismatch(SectionField(SectionKind::kSummary, c.field), c.is, c.want);
      }
    }
    for (const auto& [kind, features] : {std::pair(SectionKind::kNodeFeatures, &summary_.node_features),
                                         std::pair(SectionKind::kEdgeFeatures, &summary_.edge_features)}) {
      if (features->type != TypeOf(At(kind))) {
        return Mismatch(SectionField(kind, "type in the summary"), AbslView(kDataTypeNames.Name(features->type)),
                        AbslView(kDataTypeNames.Name(TypeOf(At(kind)))));
      }
      PF_RETURN_IF_ERROR(CheckRanges(kind, *features));
    }
    return absl::OkStatus();
  }

  static DataType TypeOf(const Section& section) {
    if (!section.present()) return DataType::kNone;
    return section.place->entry.type == ElementType::kInt32 ? DataType::kInt32 : DataType::kFloat32;
  }

  // Returns the section's values. The first call verifies the checksums and runs `check`. The result of the first
  // call is kept for all later calls.
  template <class T, class Check>
  absl::StatusOr<std::span<const T>> Verified(SectionKind kind, Check check) const {
    const Section& section = At(kind);
    absl::call_once(section.once, [&] {
      if (!section.guard->Touch(0, section.place->bytes.size())) {
        section.status = section.guard->status();
      } else if (const absl::Status status = check(section.place->template As<T>()); !status.ok()) {
        section.status = Annotate(status, absl::StrCat(file_->path().string(), ": ", SectionField(kind, "content")));
      }
      // If the file changed during the reading, reports the change instead of the reading's own status.
      if (const absl::Status intact = CheckIntact(); !intact.ok()) section.status = intact;
    });
    PF_RETURN_IF_ERROR(section.status);
    return section.place->template As<T>();
  }
  template <class T>
  absl::StatusOr<std::span<const T>> Verified(SectionKind kind) const {
    return Verified<T>(kind, [](std::span<const T>) { return absl::OkStatus(); });
  }

  absl::StatusOr<FeatureTable> Features(SectionKind kind) const {
    const Section& section = At(kind);
    if (!section.present()) return FeatureTable{};
    FeatureTable table{.type = TypeOf(section), .width = section.width(), .ints = {}, .floats = {}};
    if (table.type == DataType::kInt32) {
      PF_ASSIGN_OR_RETURN(table.ints, Verified<int32_t>(kind));
    } else {
      PF_ASSIGN_OR_RETURN(table.floats, Verified<float>(kind));
    }
    return table;
  }

  static absl::Status CheckOffsets(std::span<const uint64_t> offsets, uint64_t total) {
    return OffsetsCheck(offsets, total)(0, offsets.size_bytes());
  }

  absl::StatusOr<std::span<const uint32_t>> EdgeEnds(SectionKind kind, bool rising) const {
    PF_ASSIGN_OR_RETURN(const auto nodes, node_offsets());
    PF_ASSIGN_OR_RETURN(const auto edges, edge_offsets());
    return Verified<uint32_t>(kind, [nodes, edges, rising](std::span<const uint32_t> ends) {
      return CheckEdgeEnds(nodes, edges, ends, rising);
    });
  }

  static absl::Status CheckEdgeEnds(std::span<const uint64_t> nodes, std::span<const uint64_t> edges,
                                    std::span<const uint32_t> ends, bool rising) {
    for (size_t g = 0; g + 1 < nodes.size(); ++g) {
      const uint64_t count = nodes[g + 1] - nodes[g];
      if (edges[g + 1] > ends.size()) {  // the verified offset was in range, so the file has changed since
        return Mismatch(absl::StrCat("edge offset ", g + 1), edges[g + 1], absl::StrCat("at most ", ends.size()));
      }
      for (uint64_t e = edges[g]; e < edges[g + 1]; ++e) {
        if (ends[e] >= count) {
          return absl::DataLossError(
              absl::StrCat("edge ", e, " ends at node ", ends[e], " of graph ", g, ", which has ", count, " nodes"));
        }
        if (rising && e > edges[g] && ends[e] < ends[e - 1]) {
          return absl::DataLossError(absl::StrCat("edge ", e, " of graph ", g, " is not sorted by target"));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckGraphIds(std::span<const uint32_t> ids) const {
    for (const uint32_t id : ids) {
      if (id >= header_.graphs) return Mismatch("graph id", id, absl::StrCat("below ", header_.graphs));
    }
    return absl::OkStatus();
  }

  // Besides the kinds up to kFirstKinds, a set's file may have only categories and positions.
  static constexpr size_t kFirstKinds = static_cast<size_t>(SectionKind::kTestGraphs);

  const std::unique_ptr<StoreFile> file_;
  const FileHeader& header_;
  std::array<Section, kSectionKinds> sections_;  // by kind - 1
  GraphSetSummary summary_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const GraphSet>> GraphSet::Open(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kFileName;
  PF_ASSIGN_OR_RETURN(auto file, StoreFile::Open(path, StoreLayout::kGraphSet, MappedFile::Access::kNormal));
  absl::Status gaps = file->CheckGaps();
  PF_RETURN_IF_ERROR(file->CheckIntact());
  PF_RETURN_IF_ERROR(gaps);
  PF_ASSIGN_OR_RETURN(const std::string_view summary, file->ReadSummary());
  auto set = std::make_shared<MappedGraphSet>(std::move(file));
  const absl::Status status = set->Init(summary);
  PF_RETURN_IF_ERROR(set->CheckIntact());
  if (!status.ok()) return Annotate(status, path.string());
  return set;
}

namespace {

// `graph_at(i)` returns the id of the i-th of `count` graphs. Makes two passes, because E[x^2] - E[x]^2, which needs
// only one, loses the digits of a small variance.
template <class GraphAt>
SizeStatistics Compute(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets, size_t count,
                       GraphAt graph_at) {
  SizeStatistics s;
  s.graphs = static_cast<int64_t>(count);
  if (count == 0) return s;
  const auto size_of = [](std::span<const uint64_t> offsets, size_t g) {
    return static_cast<int64_t>(offsets[g + 1] - offsets[g]);
  };
  for (size_t i = 0; i < count; ++i) {
    const int64_t nodes = size_of(node_offsets, graph_at(i)), edges = size_of(edge_offsets, graph_at(i));
    s.nodes += nodes;
    s.edges += edges;
    s.max_nodes = std::max(s.max_nodes, nodes);
    s.max_edges = std::max(s.max_edges, edges);
  }
  const auto n = static_cast<double>(count);
  s.mean_nodes = static_cast<double>(s.nodes) / n;
  s.mean_edges = static_cast<double>(s.edges) / n;
  double nn = 0, ee = 0, ne = 0;
  for (size_t i = 0; i < count; ++i) {
    const double dn = static_cast<double>(size_of(node_offsets, graph_at(i))) - s.mean_nodes;
    const double de = static_cast<double>(size_of(edge_offsets, graph_at(i))) - s.mean_edges;
    nn += dn * dn;
    ee += de * de;
    ne += dn * de;
  }
  s.std_nodes = std::sqrt(nn / n);
  s.std_edges = std::sqrt(ee / n);
  if (nn > 0 && ee > 0) s.node_edge_correlation = std::clamp(ne / (std::sqrt(nn) * std::sqrt(ee)), -1.0, 1.0);
  return s;
}

}  // namespace

SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets) {
  return Compute(node_offsets, edge_offsets, node_offsets.size() - 1, [](size_t i) { return i; });
}

SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets,
                                 std::span<const uint32_t> graphs) {
  return Compute(node_offsets, edge_offsets, graphs.size(), [graphs](size_t i) -> size_t { return graphs[i]; });
}

}  // namespace permafrost::data
