#include "data/store/store_sections.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/format.h"

namespace permafrost::data {
namespace {

using K = SectionKind;

constexpr K kAdjacency[][5] = {{K::kInOffsets, K::kInNeighbors, K::kInWeights, K::kInTimestamps, K::kInEdgeIds},
                               {K::kOutOffsets, K::kOutNeighbors, K::kOutWeights, K::kOutTimestamps, K::kOutEdgeIds}};
constexpr K kSplits[] = {K::kTrainNodes, K::kValidNodes, K::kTestNodes};
constexpr K kLinks[] = {K::kTrainLinks, K::kValidLinks, K::kTestLinks};

class Checker {
 public:
  Checker(const GraphSummary& summary, std::span<const SectionEntry> entries) : s_(summary), entries_(entries) {}

  absl::Status Run() const {
    PF_RETURN_IF_ERROR(CheckCounts());
    for (const SectionEntry& entry : entries_) PF_RETURN_IF_ERROR(CheckShape(entry));
    PF_RETURN_IF_ERROR(CheckPresence());
    return CheckSummary();
  }

 private:
  bool Has(K kind) const { return FindEntry(entries_, kind) != nullptr; }
  uint64_t Rows(K kind) const {
    const SectionEntry* entry = FindEntry(entries_, kind);
    return entry == nullptr ? 0 : entry->rows;
  }

  absl::Status CheckCounts() const {
    const struct {
      std::string_view field;
      int64_t is;
      uint64_t most;
    } kCounts[] = {{"nodes", s_.nodes, kMaxNodes},
                   {"edges", s_.edges, INT64_MAX},
                   {"num_targets", s_.num_targets, UINT32_MAX},
                   {"self_loops", s_.self_loops, static_cast<uint64_t>(s_.edges)},
                   {"isolated_nodes", s_.isolated_nodes, static_cast<uint64_t>(s_.nodes)},
                   {"max_degree", s_.max_degree, static_cast<uint64_t>(s_.edges)},
                   {"node_feature_nonzeros", s_.node_feature_nonzeros, INT64_MAX},
                   {"position_columns", s_.position_columns, kMaxPositionColumns},
                   {"node_features.width", s_.node_features.width, kMaxFeatureColumns},
                   {"edge_features.width", s_.edge_features.width, kMaxFeatureColumns}};
    for (const auto& c : kCounts) {
      if (c.is < 0 || static_cast<uint64_t>(c.is) > c.most) {
        return Mismatch(SectionField(K::kSummary, c.field), c.is, absl::StrCat("0..", c.most));
      }
    }
    for (const GivenLinksSummary::Part& part : s_.links.parts) {
      for (const int64_t count : {part.links, part.negatives, part.pairs}) {
        if (count >= 0 && count <= int64_t{UINT32_MAX}) continue;
        return Mismatch(SectionField(K::kSummary, "links"), count, absl::StrCat("0..", UINT32_MAX));
      }
    }
    for (const auto& [kind, features] :
         {std::pair(K::kNodeFeatures, &s_.node_features), std::pair(K::kEdgeFeatures, &s_.edge_features)}) {
      PF_RETURN_IF_ERROR(CheckRanges(kind, *features));
    }
    return absl::OkStatus();
  }

  // The values that a section's entry must have: `type` none: any of dense features; `width` and `rows` none: any.
  struct Shape {
    std::optional<ElementType> type;
    std::optional<uint32_t> width = 1;
    std::optional<uint64_t> rows;
  };
  std::optional<Shape> ShapeOf(K kind) const {
    const auto nodes = static_cast<uint64_t>(s_.nodes), edges = static_cast<uint64_t>(s_.edges);
    switch (kind) {
      case K::kSummary:
      case K::kNodeNameText:
      case K::kNumberedCategories:
      case K::kSeenCategories:
        return Shape{.type = ElementType::kBytes, .rows = std::nullopt};
      case K::kInOffsets:
      case K::kOutOffsets:
      case K::kNodeFeatureOffsets:
      case K::kNodeNameOffsets:
        return Shape{.type = ElementType::kUint64, .rows = nodes + 1};
      case K::kInNeighbors:
      case K::kOutNeighbors:
        return Shape{.type = ElementType::kUint32, .rows = edges};
      case K::kInWeights:
      case K::kOutWeights:
        return Shape{.type = ElementType::kFloat32, .rows = edges};
      case K::kInTimestamps:
      case K::kOutTimestamps:
        return Shape{.type = ElementType::kInt64, .rows = edges};
      case K::kInEdgeIds:
      case K::kOutEdgeIds:
        return Shape{.type = ElementType::kUint64, .rows = edges};
      case K::kNodeFeatures:
        return Shape{.type = std::nullopt, .width = std::nullopt, .rows = nodes};
      case K::kEdgeFeatures:
        return Shape{.type = std::nullopt, .width = std::nullopt, .rows = std::nullopt};
      case K::kNodeFeatureScales:
        return Shape{.type = ElementType::kFloat32, .width = static_cast<uint32_t>(s_.node_features.width), .rows = 1};
      case K::kNodeFeatureColumns:
        return Shape{.type = ElementType::kUint32, .rows = std::nullopt};
      case K::kNodeFeatureValues:
        return Shape{.type = ElementType::kFloat32, .rows = Rows(K::kNodeFeatureColumns)};
      case K::kLabels:
        return Shape{.type = ElementType::kFloat32, .width = static_cast<uint32_t>(s_.num_targets), .rows = nodes};
      case K::kPositions:
        return Shape{.type = ElementType::kFloat32, .width = static_cast<uint32_t>(s_.position_columns), .rows = nodes};
      case K::kTrainNodes:
      case K::kValidNodes:
      case K::kTestNodes:
        return Shape{.type = ElementType::kUint32, .rows = std::nullopt};
      case K::kNodeTimes:
        return Shape{.type = ElementType::kInt64, .rows = nodes};
      case K::kNodeNumbers:
        return Shape{.type = ElementType::kUint64, .rows = nodes};
      case K::kTrainLinks:
      case K::kValidLinks:
      case K::kTestLinks:
        return Shape{.type = ElementType::kUint32, .width = 2, .rows = std::nullopt};
      case K::kValidNegatives:
        return ShapeOfNegatives(s_.links.of(Split::kValid));
      case K::kTestNegatives:
        return ShapeOfNegatives(s_.links.of(Split::kTest));
      default:
        return std::nullopt;
    }
  }

  static Shape ShapeOfNegatives(const GivenLinksSummary::Part& part) {
    const bool shared = part.pairs > 0;
    return {.type = ElementType::kUint32,
            .width = shared ? 2 : static_cast<uint32_t>(part.negatives),
            .rows = static_cast<uint64_t>(shared ? part.pairs : part.links)};
  }

  absl::Status CheckShape(const SectionEntry& entry) const {
    const auto shape = ShapeOf(entry.kind);
    if (!shape) return absl::DataLossError(SectionField(entry.kind, "has no place in the store of one graph"));
    const auto field = [&entry](std::string_view name) { return SectionField(entry.kind, name); };
    if (shape->type ? entry.type != *shape->type : DataTypeOf(entry.type) == DataType::kNone) {
      return Mismatch(
          field("type"), AbslView(kElementTypeNames.Name(entry.type)),
          AbslView(shape->type ? kElementTypeNames.Name(*shape->type) : std::string_view("a type of dense features")));
    }
    if (shape->width && entry.width != *shape->width) return Mismatch(field("width"), entry.width, *shape->width);
    if (entry.width == 0) return Mismatch(field("width"), 0, "at least 1");
    if (shape->rows && entry.rows != *shape->rows) return Mismatch(field("rows"), entry.rows, *shape->rows);
    return absl::OkStatus();
  }

  absl::Status CheckPresence() const {
    const auto needs = [this](K kind, bool present, std::string_view when) {
      if (Has(kind) == present) return absl::OkStatus();
      return absl::DataLossError(
          SectionField(kind, absl::StrCat(present ? "is missing " : "is there ", AbslView(when))));
    };
    for (const K kind : {K::kSummary, K::kInOffsets, K::kInNeighbors}) {
      PF_RETURN_IF_ERROR(needs(kind, true, "from the store of a graph"));
    }
    const bool out = Has(K::kOutOffsets);
    if (s_.symmetric) PF_RETURN_IF_ERROR(needs(K::kOutOffsets, false, "beside a symmetric graph's in_offsets"));
    PF_RETURN_IF_ERROR(needs(K::kOutNeighbors, out, out ? "beside out_offsets" : "without out_offsets"));
    for (const bool of_out : {false, true}) {
      const auto& kinds = kAdjacency[of_out];
      PF_RETURN_IF_ERROR(needs(kinds[2], s_.weighted && (out || !of_out), "against the summary's `weighted`"));
      PF_RETURN_IF_ERROR(needs(kinds[3], s_.timestamped && (out || !of_out), "against the summary's `timestamped`"));
    }
    if (!out) PF_RETURN_IF_ERROR(needs(K::kOutEdgeIds, false, "without out_offsets"));
    PF_RETURN_IF_ERROR(needs(K::kLabels, s_.num_targets > 0, "against the summary's `num_targets`"));
    PF_RETURN_IF_ERROR(needs(K::kNodeTimes, s_.node_times, "against the summary's `node_times`"));
    PF_RETURN_IF_ERROR(needs(K::kPositions, s_.position_columns > 0, "against the summary's `position_columns`"));
    const bool sparse = s_.node_features.type == DataType::kSparse;
    const bool dense = !sparse && s_.node_features.type != DataType::kNone;
    constexpr std::string_view kFeatures = "against the summary's `node_features`";
    PF_RETURN_IF_ERROR(needs(K::kNodeFeatures, dense, kFeatures));
    PF_RETURN_IF_ERROR(needs(K::kNodeFeatureOffsets, sparse, kFeatures));
    PF_RETURN_IF_ERROR(needs(K::kNodeFeatureColumns, sparse, kFeatures));
    if (!sparse) PF_RETURN_IF_ERROR(needs(K::kNodeFeatureValues, false, kFeatures));
    PF_RETURN_IF_ERROR(needs(K::kNodeFeatureScales, s_.node_features.type == DataType::kInt8, kFeatures));
    if (s_.edge_features.type == DataType::kInt8) {
      return Mismatch(SectionField(K::kEdgeFeatures, "type"), "int8", "a type that needs no scales");
    }
    PF_RETURN_IF_ERROR(
        needs(K::kEdgeFeatures, s_.edge_features.type != DataType::kNone, "against the summary's `edge_features`"));
    for (const K kind : kLinks) PF_RETURN_IF_ERROR(needs(kind, s_.links.given, "against the summary's `links`"));
    for (const auto& [kind, split] :
         {std::pair(K::kValidNegatives, Split::kValid), std::pair(K::kTestNegatives, Split::kTest)}) {
      const GivenLinksSummary::Part& part = s_.links.of(split);
      PF_RETURN_IF_ERROR(needs(kind, part.negatives > 0 || part.pairs > 0, "against the summary's `links`"));
    }
    const bool names = Has(K::kNodeNameOffsets);
    PF_RETURN_IF_ERROR(
        needs(K::kNodeNameText, names, names ? "beside node_name_offsets" : "without node_name_offsets"));
    return needs(K::kNodeNumbers, s_.named && !names, "against the summary's `named` and node_name_offsets");
  }

  absl::Status CheckSummary() const {
    const struct {
      std::string_view field;
      int64_t is;
      uint64_t want;
    } kCounts[] = {
        {"split_nodes.train", s_.split_nodes[0], Rows(kSplits[0])},
        {"split_nodes.valid", s_.split_nodes[1], Rows(kSplits[1])},
        {"split_nodes.test", s_.split_nodes[2], Rows(kSplits[2])},
        {"links.train", s_.links.parts[0].links, Rows(kLinks[0])},
        {"links.valid", s_.links.parts[1].links, Rows(kLinks[1])},
        {"links.test", s_.links.parts[2].links, Rows(kLinks[2])},
        {"node_feature_nonzeros", s_.node_feature_nonzeros, Rows(K::kNodeFeatureColumns)},
    };
    for (const auto& c : kCounts) {
      if (!std::in_range<uint64_t>(c.is) || static_cast<uint64_t>(c.is) != c.want) {
        return Mismatch(SectionField(K::kSummary, c.field), c.is, c.want);
      }
    }
    if (Has(K::kNodeNameOffsets) && !s_.named) {
      return absl::DataLossError(SectionField(K::kNodeNameOffsets, "is there against the summary's `named`"));
    }
    for (const auto& [kind, features] :
         {std::pair(K::kNodeFeatures, &s_.node_features), std::pair(K::kEdgeFeatures, &s_.edge_features)}) {
      const SectionEntry* entry = FindEntry(entries_, kind);
      if (entry == nullptr) continue;
      if (DataTypeOf(entry->type) != features->type) {
        return Mismatch(SectionField(kind, "type"), AbslView(kElementTypeNames.Name(entry->type)),
                        absl::StrCat("the summary's ", AbslView(kDataTypeNames.Name(features->type))));
      }
      if (entry->width != features->width) {
        return Mismatch(SectionField(kind, "width"), entry->width, absl::StrCat("the summary's ", features->width));
      }
    }
    if (Has(K::kEdgeFeatures)) {
      const auto edges = static_cast<uint64_t>(s_.edges);
      const uint64_t rows = Rows(K::kEdgeFeatures);
      // With ids any number will do: edges share rows, and coalesced ones leave some without an edge.
      if (!Has(K::kInEdgeIds) && rows != edges) {
        return Mismatch(SectionField(K::kEdgeFeatures, "rows"), rows, edges);
      }
    }
    return absl::OkStatus();
  }

  const GraphSummary& s_;
  const std::span<const SectionEntry> entries_;
};

}  // namespace

const SectionEntry* FindEntry(std::span<const SectionEntry> entries, SectionKind kind) {
  const auto it = std::ranges::find_if(entries, [kind](const SectionEntry& e) { return e.kind == kind; });
  return it == entries.end() ? nullptr : &*it;
}

absl::Status CheckGraphSections(const GraphSummary& summary, std::span<const SectionEntry> entries) {
  return Checker(summary, entries).Run();
}

uint64_t AdjacencyBytes(std::span<const SectionEntry> entries) {
  uint64_t bytes = 0;
  for (const auto& direction : kAdjacency) {
    for (const SectionKind kind : direction) {
      if (const SectionEntry* entry = FindEntry(entries, kind)) bytes += entry->bytes;
    }
  }
  return bytes;
}

namespace {

// The tables that the import numbered, or the others.
Categories OnlyNumbered(const Categories& all, bool numbered) {
  // Degrees are counted by the import, though their column looks like any other.
  const auto belongs = [numbered](const CategoryTable& table) {
    return numbered == (table.renumbered() || table.origin == CategoryOrigin::kDegree);
  };
  Categories some = all;
  for (FeatureCategories* features : {&some.node, &some.edge}) {
    std::erase_if(features->tables, [&](const CategoryTable& table) { return !belongs(table); });
  }
  if (some.classes && !belongs(*some.classes)) some.classes.reset();
  return some;
}

std::string TextOf(const Categories& categories) {
  const bool any = !categories.node.tables.empty() || !categories.edge.tables.empty() || categories.classes;
  return any ? CategoriesToJson(categories) : "";
}

absl::Status Merge(FeatureCategories from, FeatureCategories& to) {
  if (from.type != to.type || from.width != to.width) {
    return absl::DataLossError(
        absl::StrCat("its features have ", from.width, " columns, and those of the summary ", to.width));
  }
  std::ranges::move(from.tables, std::back_inserter(to.tables));
  std::ranges::sort(to.tables, {}, &CategoryTable::column);
  return absl::OkStatus();
}

absl::Status ReadSection(const StoreFile& file, SectionKind kind, Categories& categories) {
  const StoreFile::Section* const section = file.Find(kind);
  if (section == nullptr) return absl::OkStatus();
  const auto guard = file.Guard(*section, nullptr);
  if (!guard->Touch(0, section->bytes.size())) {
    PF_RETURN_IF_ERROR(file.CheckIntact());
    return guard->status();
  }
  const auto text = section->As<char>();
  auto read = CategoriesFromJson(std::string_view(text.data(), text.size()));
  PF_RETURN_IF_ERROR(file.CheckIntact());
  absl::Status status = read.status();
  if (status.ok()) status = Merge(std::move(read->node), categories.node);
  if (status.ok()) status = Merge(std::move(read->edge), categories.edge);
  if (!status.ok()) {
    return Annotate(status, absl::StrCat(file.path().string(), ": ", SectionField(kind, "content")));
  }
  if (read->classes) categories.classes = std::move(read->classes);
  return absl::OkStatus();
}

}  // namespace

CategorySections SectionsOf(const Categories& categories) {
  return {.numbered = TextOf(OnlyNumbered(categories, true)), .seen = TextOf(OnlyNumbered(categories, false))};
}

absl::StatusOr<Categories> ReadCategories(const StoreFile& file, Categories features) {
  for (const SectionKind kind : {SectionKind::kNumberedCategories, SectionKind::kSeenCategories}) {
    PF_RETURN_IF_ERROR(ReadSection(file, kind, features));
  }
  return features;
}

namespace {

template <class T>
BlockGuard::ContentCheck Below(std::span<const T> values, uint64_t bound, std::string what) {
  return [values, bound, what = std::move(what)](uint64_t begin, uint64_t end) {
    const auto block = values.subspan(begin / sizeof(T), (end - begin) / sizeof(T));
    // A maximum is found several values at a time.
    T largest = 0;
    for (const T value : block) largest = std::max(largest, value);
    if (block.empty() || largest < bound) return absl::OkStatus();
    const auto bad = std::ranges::find_if(block, [bound](T value) { return value >= bound; });
    return Mismatch(absl::StrCat(what, " ", begin / sizeof(T) + static_cast<uint64_t>(bad - block.begin())), *bad,
                    absl::StrCat("below ", bound));
  };
}

}  // namespace

BlockGuard::ContentCheck OffsetsCheck(std::span<const uint64_t> offsets, uint64_t total) {
  return [offsets, total](uint64_t begin_byte, uint64_t end_byte) {
    const uint64_t begin = begin_byte / sizeof(uint64_t), end = end_byte / sizeof(uint64_t);
    if (begin == 0 && offsets.front() != 0) return Mismatch("first offset", offsets.front(), 0);
    if (end == offsets.size() && offsets.back() != total) return Mismatch("last offset", offsets.back(), total);
    for (uint64_t i = std::max<uint64_t>(begin, 1); i < end; ++i) {
      if (offsets[i] < offsets[i - 1]) {
        return Mismatch(absl::StrCat("offset ", i), offsets[i], absl::StrCat("at least ", offsets[i - 1]));
      }
    }
    if (offsets[end - 1] > total) {
      return Mismatch(absl::StrCat("offset ", end - 1), offsets[end - 1], absl::StrCat("at most ", total));
    }
    return absl::OkStatus();
  };
}

BlockGuard::ContentCheck BelowCheck(std::span<const uint32_t> values, uint64_t bound, std::string what) {
  return Below(values, bound, std::move(what));
}
BlockGuard::ContentCheck BelowCheck(std::span<const uint64_t> values, uint64_t bound, std::string what) {
  return Below(values, bound, std::move(what));
}

absl::Status CheckRanges(SectionKind kind, const FeatureSummary& features) {
  for (const std::vector<double>* range : {&features.min, &features.max}) {
    if (range->empty() || std::ssize(*range) == features.width) continue;
    return Mismatch(SectionField(kind, "columns with a range in the summary"), range->size(), features.width);
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
