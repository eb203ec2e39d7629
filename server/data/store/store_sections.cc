#include "data/store/store_sections.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/status.h"
#include "base/string_view.h"

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

  // The values that the entry of a section must have. If `type` is nullopt, the entry may have any type of dense
  // features. If `width` or `rows` is nullopt, the entry may have any number.
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
      // With edge ids, there may be any number of rows: several edges may share a row, and coalescing leaves some
      // rows without an edge.
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

absl::Status CheckRanges(SectionKind kind, const FeatureSummary& features) {
  for (const std::vector<double>* range : {&features.min, &features.max}) {
    if (range->empty() || std::ssize(*range) == features.width) continue;
    return Mismatch(SectionField(kind, "columns with a range in the summary"), range->size(), features.width);
  }
  return absl::OkStatus();
}

namespace {

using nlohmann::json;

json StatisticsToJson(const SizeStatistics& s) {
  return {{"graphs", s.graphs},       {"nodes", s.nodes},
          {"edges", s.edges},         {"mean_nodes", s.mean_nodes},
          {"std_nodes", s.std_nodes}, {"mean_edges", s.mean_edges},
          {"std_edges", s.std_edges}, {"max_nodes", s.max_nodes},
          {"max_edges", s.max_edges}, {"node_edge_correlation", s.node_edge_correlation}};
}

SizeStatistics StatisticsFromJson(const json& j) {
  SizeStatistics s;
  j.at("graphs").get_to(s.graphs);
  j.at("nodes").get_to(s.nodes);
  j.at("edges").get_to(s.edges);
  j.at("mean_nodes").get_to(s.mean_nodes);
  j.at("std_nodes").get_to(s.std_nodes);
  j.at("mean_edges").get_to(s.mean_edges);
  j.at("std_edges").get_to(s.std_edges);
  j.at("max_nodes").get_to(s.max_nodes);
  j.at("max_edges").get_to(s.max_edges);
  j.at("node_edge_correlation").get_to(s.node_edge_correlation);
  return s;
}

json CategoriesSummaryToJson(const std::vector<CategorySummary>& categories) {
  json all = json::array();
  for (const CategorySummary& c : categories) {
    all.push_back({{"name", c.name},
                   {"column", c.column},
                   {"columns", c.columns},
                   {"values", c.values},
                   {"first_values", c.first_values}});
  }
  return all;
}

json FeaturesToJson(const FeatureSummary& f) {
  return {{"type", kDataTypeNames.Name(f.type)},
          {"width", f.width},
          {"min", f.min},
          {"max", f.max},
          {"categories", CategoriesSummaryToJson(f.categories)}};
}

std::optional<FeatureSummary> FeaturesFromJson(const json& j) {
  FeatureSummary f;
  const auto type = kDataTypeNames.Parse(j.at("type").get<std::string>());
  if (!type) return std::nullopt;
  f.type = *type;
  j.at("width").get_to(f.width);
  j.at("min").get_to(f.min);
  j.at("max").get_to(f.max);
  // Stores of older versions do not have this field.
  if (const auto categories = j.find("categories"); categories != j.end()) {
    for (const json& each : *categories) {
      CategorySummary& c = f.categories.emplace_back();
      each.at("name").get_to(c.name);
      each.at("column").get_to(c.column);
      each.at("columns").get_to(c.columns);
      each.at("values").get_to(c.values);
      each.at("first_values").get_to(c.first_values);
    }
  }
  return f;
}

struct GraphSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<GraphSummary>& s) {
    a("nodes", s.nodes);
    a("edges", s.edges);
    a("symmetric", s.symmetric);
    a("inverse_edges_added", s.inverse_edges_added);
    a("directions", s.directions, kEdgeDirectionsNames);
    a("weighted", s.weighted);
    a("timestamped", s.timestamped);
    a("node_times", s.node_times);
    a("named", s.named);
    a("order", s.order, kNodeOrderNames);
    a("self_loops", s.self_loops);
    a("isolated_nodes", s.isolated_nodes);
    a("max_degree", s.max_degree);
    a("duplicate_edges", s.duplicate_edges);
    a("equal_edges", s.equal_edges);
    a("node_features", s.node_features);
    a("edge_features", s.edge_features);
    a("node_feature_nonzeros", s.node_feature_nonzeros);
    a("position_columns", s.position_columns);
    a("num_targets", s.num_targets);
    a("num_missing_labels", s.num_missing_labels);
    a("min_label", s.min_label);
    a("max_label", s.max_label);
    a("integer_labels", s.integer_labels);
    a("train_nodes", s.split_nodes[0]);
    a("valid_nodes", s.split_nodes[1]);
    a("test_nodes", s.split_nodes[2]);
    a("split_name", s.split_name);
    a("links", s.links);
    a("notes", s.notes);
    a("categories_known", s.categories_known);
  }
  template <class A>
  static void Fields(A& a, typename A::template Visited<GivenLinksSummary>& l) {
    a("given", l.given);
    a("train", l.parts[0]);
    a("valid", l.parts[1]);
    a("test", l.parts[2]);
  }
  template <class A>
  static void Fields(A& a, typename A::template Visited<GivenLinksSummary::Part>& p) {
    a("links", p.links);
    a("negatives", p.negatives);
    a("pairs", p.pairs);
  }
  template <class A>
  static void Fields(A& a, typename A::template Visited<FeatureSummary>& f) {
    a("type", f.type, kDataTypeNames);
    a("width", f.width);
    a("min", f.min);
    a("max", f.max);
    a("converted_from", f.converted_from, kDataTypeNames);
    a("largest_error", f.largest_error);
    a("rms_error", f.rms_error);
    a("categories", f.categories);
  }
  template <class A>
  static void Fields(A& a, typename A::template Visited<CategorySummary>& c) {
    a("name", c.name);
    a("column", c.column);
    a("columns", c.columns);
    a("values", c.values);
    a("first_values", c.first_values);
  }
};

}  // namespace

std::string SummaryToJson(const GraphSetSummary& summary) {
  json splits = json::object();
  for (const auto& [split, name] : kSplitNames.rows) {
    splits[std::string(name)] = StatisticsToJson(summary.splits[static_cast<size_t>(split)]);
  }
  json j = {{"all", StatisticsToJson(summary.all)},
            {"splits", splits},
            {"node_features", FeaturesToJson(summary.node_features)},
            {"edge_features", FeaturesToJson(summary.edge_features)},
            {"position_columns", summary.position_columns},
            {"num_targets", summary.num_targets},
            {"num_missing_labels", summary.num_missing_labels},
            {"split_name", summary.split_name},
            {"inverse_edges_added", summary.inverse_edges_added},
            {"directions", kEdgeDirectionsNames.Name(summary.directions)},
            {"class_values", summary.class_values},
            {"node_feature_origin", summary.node_feature_origin},
            {"edge_feature_origin", summary.edge_feature_origin},
            {"duplicate_edges", summary.duplicate_edges},
            {"notes", summary.notes},
            {"categories_known", summary.categories_known}};
  if (summary.labels_known) {
    j["integer_labels"] = summary.integer_labels;
    j["min_label"] = summary.min_label;
    j["max_label"] = summary.max_label;
  }
  // A split's name is the name of a directory, so it may hold any bytes. JSON must be UTF-8, so other bytes are
  // replaced.
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<GraphSetSummary> SummaryFromJson(std::string_view text) {
  // nlohmann reports errors by exceptions. They must not leave this function.
  try {
    const json j = json::parse(text);
    GraphSetSummary summary;
    summary.all = StatisticsFromJson(j.at("all"));
    for (const auto& [split, name] : kSplitNames.rows) {
      summary.splits[static_cast<size_t>(split)] = StatisticsFromJson(j.at("splits").at(std::string(name)));
    }
    const auto node_features = FeaturesFromJson(j.at("node_features"));
    const auto edge_features = FeaturesFromJson(j.at("edge_features"));
    if (!node_features || !edge_features) {
      return absl::DataLossError(absl::StrCat("feature type is none of ", kDataTypeNames.Accepted()));
    }
    summary.node_features = *node_features;
    summary.edge_features = *edge_features;
    j.at("num_targets").get_to(summary.num_targets);
    j.at("num_missing_labels").get_to(summary.num_missing_labels);
    j.at("split_name").get_to(summary.split_name);
    j.at("inverse_edges_added").get_to(summary.inverse_edges_added);
    // Stores of older versions do not have the fields from here on.
    const auto read = [&j](const char* field, auto& value) {
      if (const auto found = j.find(field); found != j.end()) found->get_to(value);
    };
    read("position_columns", summary.position_columns);
    read("class_values", summary.class_values);
    read("node_feature_origin", summary.node_feature_origin);
    read("edge_feature_origin", summary.edge_feature_origin);
    if (const auto found = j.find("directions"); found != j.end()) {
      const auto directions = kEdgeDirectionsNames.Parse(found->get<std::string>());
      if (!directions) {
        return absl::DataLossError(absl::StrCat("directions is none of ", kEdgeDirectionsNames.Accepted()));
      }
      summary.directions = *directions;
    }
    read("duplicate_edges", summary.duplicate_edges);
    read("notes", summary.notes);
    read("categories_known", summary.categories_known);
    summary.labels_known = j.contains("integer_labels");
    read("integer_labels", summary.integer_labels);
    read("min_label", summary.min_label);
    read("max_label", summary.max_label);
    return summary;
  } catch (const json::exception& e) {
    return absl::DataLossError(e.what());
  }
}

std::string GraphSummaryToJson(const GraphSummary& summary) { return WriteJson<GraphSchema>(summary); }

absl::StatusOr<GraphSummary> GraphSummaryFromJson(std::string_view text) {
  return ReadJson<GraphSchema, GraphSummary>("section summary", std::string(text));
}

}  // namespace permafrost::data
