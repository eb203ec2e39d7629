#include "data/store/store_sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;

GraphSetSummary Sample() {
  GraphSetSummary summary;
  summary.num_targets = 1;
  summary.position_columns = 3;
  summary.labels_known = summary.integer_labels = true;
  summary.min_label = 0;
  summary.max_label = 2;
  summary.class_values = {-1, 1, 7};
  summary.node_feature_origin = "labels from 3";
  summary.edge_feature_origin = "attributes";
  summary.duplicate_edges = 5;
  summary.notes = {"edges: kept as they stand"};
  return summary;
}

TEST(SummaryJson, WhatIsKnownOfLabelsComesBack) {
  const auto back = SummaryFromJson(SummaryToJson(Sample()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->labels_known && back->integer_labels);
  EXPECT_EQ(back->max_label, 2);
  EXPECT_EQ(back->position_columns, 3);
  EXPECT_THAT(back->class_values, ElementsAre(-1, 1, 7));
  EXPECT_EQ(back->node_feature_origin, "labels from 3");
  EXPECT_EQ(back->edge_feature_origin, "attributes");
  EXPECT_EQ(back->duplicate_edges, 5);
  EXPECT_THAT(back->notes, ElementsAre("edges: kept as they stand"));
}

// Older versions wrote such a summary, because they neither examined labels nor read positions.
TEST(SummaryJson, AnOlderSummaryKnowsNothingOfItsLabelsAndPositions) {
  auto json = nlohmann::json::parse(SummaryToJson(Sample()));
  for (const char* field : {"integer_labels", "min_label", "max_label", "class_values", "node_feature_origin",
                            "edge_feature_origin", "duplicate_edges", "notes", "position_columns"}) {
    ASSERT_EQ(json.erase(field), 1U) << field;
  }
  const auto back = SummaryFromJson(json.dump());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->num_targets, 1);
  EXPECT_FALSE(back->labels_known);
  EXPECT_TRUE(back->class_values.empty());
  EXPECT_EQ(back->position_columns, 0);
}

TEST(SummaryJson, AFieldOfAnotherTypeIsDamage) {
  auto json = nlohmann::json::parse(SummaryToJson(Sample()));
  json["class_values"] = "none";
  EXPECT_EQ(SummaryFromJson(json.dump()).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace permafrost::data
