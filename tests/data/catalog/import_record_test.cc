#include "data/catalog/imports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "data/store/types.h"

namespace permafrost::data {
namespace {

using ::testing::HasSubstr;

TEST(ImportRecord, ComesBackWhole) {
  ImportRecord record{
      .create_time = absl::FromUnixMicros(1'700'000'000'123'456), .uid = "0f", .error = "it \"failed\"", .starts = 2};
  ImportOptions& o = record.options;
  o.source = "/data/a file";
  o.format = ImportFormat::kEdgeList;
  o.inverse_edges = InverseEdges::kKeep;
  o.coalesce = true;
  o.keep_out_edges = false;
  o.split = "time";
  o.split_seed = UINT64_MAX;
  o.train_fraction = 0.1;
  o.valid_fraction = 1.0 / 3;
  o.edge_list = {.node_ids = NodeIds::kText,
                 .columns = {EdgeColumn::kTimestamp, EdgeColumn::kIgnore, EdgeColumn::kWeight},
                 .header = Header::kYes,
                 .delimiter = '\xa7',
                 .comment = '\0',
                 .quote = '\xa8',
                 .num_nodes = 4'294'967'295};
  o.tu = {.node_features = TuNodeFeatures::kAttributes, .one_hot = true, .max_degree = 12};
  o.node_features = NodeFeatureChoice::kDense;
  o.feature_type = FeatureType::kInt8;
  o.order = NodeOrder::kCommunity;
  o.memory_bytes = uint64_t{1} << 63;
  const auto read = RecordFromJson(RecordToJson(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->create_time, record.create_time);
  EXPECT_EQ(read->uid, "0f");
  EXPECT_EQ(read->error, record.error);
  EXPECT_EQ(read->starts, 2);
  EXPECT_EQ(read->options, o);
}

// As datasets of the first release have it.
TEST(ImportRecord, AnOlderRecordTakesDefaults) {
  const auto read = RecordFromJson(R"({
  "add_inverse_edges": false, "create_time": "2026-01-02T03:04:05+00:00", "error": "", "source": "/data/zinc",
  "split": "plain", "split_seed": 7, "train_fraction": 0.5, "valid_fraction": 0.25
})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->uid, "1767323045000000") << "its time, in microseconds, as older versions told datasets apart";
  EXPECT_EQ(read->options.source, "/data/zinc");
  EXPECT_EQ(read->options.inverse_edges, InverseEdges::kKeep);
  EXPECT_EQ(read->options.split, "plain");
  EXPECT_EQ(read->options.split_seed, 7u);
  EXPECT_EQ(read->options.valid_fraction, 0.25);
  EXPECT_EQ(read->starts, 0);
  EXPECT_EQ(read->options.format, ImportFormat::kAuto);
  EXPECT_FALSE(read->options.coalesce);
  EXPECT_TRUE(read->options.keep_out_edges);
  EXPECT_EQ(read->options.edge_list, EdgeListOptions());
  EXPECT_EQ(read->options.feature_type, FeatureType::kAsIs);
  EXPECT_EQ(read->options.order, NodeOrder::kNone);
  EXPECT_EQ(read->options.memory_bytes, 0u);
}

TEST(ImportRecord, WhatDoesNotAddUpIsNamed) {
  const struct {
    const char* why;
    const char* text;
    const char* want;
  } kCases[] = {
      {"no JSON", "{]", "parse error"},
      {"no object", "[]", "an object was expected, not array"},
      {"no time", R"({"source": "/a"})", "create_time: is missing"},
      {"a time that is none", R"({"create_time": "soon", "source": "/a"})", "create_time: \"soon\" is not a time"},
      {"no source", R"({"create_time": "2026-01-02T03:04:05+00:00"})", "source: is missing"},
      {"an unknown format", R"({"create_time": "2026-01-02T03:04:05+00:00", "source": "/a", "format": "parquet"})",
       "format: \"parquet\" is none of auto, ogb-graphs"},
      {"an unknown column",
       R"({"create_time": "2026-01-02T03:04:05+00:00", "source": "/a", "edge_list": {"columns": ["weight", "colour"]}})",
       "columns: \"colour\" is none of source, target, weight, timestamp, ignore"},
      {"another type", R"({"create_time": "2026-01-02T03:04:05+00:00", "source": "/a", "starts": "two"})",
       "must be number"},
  };
  for (const auto& c : kCases) {
    const auto read = RecordFromJson(c.text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << c.why << ": " << read.status();
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(c.want)) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::data
