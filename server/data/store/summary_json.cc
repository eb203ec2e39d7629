#include "data/store/summary_json.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"

namespace permafrost::data {
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
  // Stores of older versions have none.
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
  // A split's name is a directory's: any bytes, while JSON is UTF-8.
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<GraphSetSummary> SummaryFromJson(std::string_view text) {
  // nlohmann reports by exceptions; they end here.
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
    // Stores of older versions do not have the fields that follow.
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
