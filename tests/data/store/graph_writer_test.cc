#include "data/store/store_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/graph_fixture.h"
#include "data/store_image.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using K = SectionKind;

TEST(GraphWriter, WhatMakesNoGraphIsRefused) {
  const struct {
    const char* why;
    std::function<void(TestGraph&)> spoil;
    const char* want;
  } kCases[] = {
      {"no offsets", [](TestGraph& g) { g.Drop(K::kInOffsets); }, "section in_offsets: is missing"},
      {"no neighbours", [](TestGraph& g) { g.Drop(K::kInNeighbors); }, "section in_neighbors: is missing"},
      {"half of the other order", [](TestGraph& g) { g.Drop(K::kOutNeighbors); },
       "section out_neighbors: is missing beside out_offsets"},
      {"the other half", [](TestGraph& g) { g.Drop(K::kOutOffsets); },
       "section out_neighbors: is there without out_offsets"},
      {"weights of one order only", [](TestGraph& g) { g.Drop(K::kOutWeights); },
       "section out_weights: is missing against the summary's `weighted`"},
      {"weights not told of", [](TestGraph& g) { g.summary.weighted = false; },
       "section in_weights: is there against the summary's `weighted`"},
      {"no timestamps", [](TestGraph& g) { g.Drop(K::kInTimestamps); }, "section in_timestamps: is missing"},
      {"no labels", [](TestGraph& g) { g.Drop(K::kLabels); }, "section labels: is missing"},
      {"no positions", [](TestGraph& g) { g.Drop(K::kPositions); },
       "section positions: is missing against the summary's `position_columns`"},
      {"too many columns of positions", [](TestGraph& g) { g.summary.position_columns = 17; },
       "section summary: position_columns: is 17, expected 0..16"},
      {"no features", [](TestGraph& g) { g.Drop(K::kNodeFeatures); }, "section node_features: is missing"},
      {"other features", [](TestGraph& g) { g.summary.node_features.width = 4; },
       "section node_features: width: is 3, expected the summary's 4"},
      {"fewer edges' features",
       [](TestGraph& g) {
         g.Drop(K::kInEdgeIds);
         g.Drop(K::kEdgeFeatures);
         g.Add(K::kEdgeFeatures, ElementType::kFloat32, std::vector<float>(3 * 19), 3);
       },
       "section edge_features: rows: is 19, expected 20"},
      {"names twice",
       [](TestGraph& g) {
         g.Add(K::kNodeNameOffsets, ElementType::kUint64, std::vector<uint64_t>(11));
         g.Add(K::kNodeNameText, ElementType::kBytes, std::vector<char>());
       },
       "section node_numbers: is there against"},
      {"int8 without scales",
       [](TestGraph& g) {
         g = MakeTestGraph({.nodes = 10, .edges = 20, .features = DataType::kInt8});
         g.Drop(K::kNodeFeatureScales);
       },
       "section node_feature_scales: is missing"},
      {"scales of another width",
       [](TestGraph& g) {
         g = MakeTestGraph({.nodes = 10, .edges = 20, .features = DataType::kInt8});
         g.Drop(K::kNodeFeatureScales);
         g.Add(K::kNodeFeatureScales, ElementType::kFloat32, std::vector<float>(2), 2);
       },
       "section node_feature_scales: width: is 2, expected 3"},
      {"scales beside floats",
       [](TestGraph& g) { g.Add(K::kNodeFeatureScales, ElementType::kFloat32, std::vector<float>(3), 3); },
       "section node_feature_scales: is there"},
      {"edge features that would need scales",
       [](TestGraph& g) {
         g = MakeTestGraph({.nodes = 10, .edges = 20, .features = DataType::kInt8});
         g.summary.edge_features.type = DataType::kInt8;
       },
       "section edge_features: type: is int8, expected a type that needs no scales"},
      {"no names", [](TestGraph& g) { g.Drop(K::kNodeNumbers); }, "section node_numbers: is missing"},
      {"other nodes", [](TestGraph& g) { g.summary.nodes = 11; }, "section in_offsets: rows: is 11, expected 12"},
      {"too many nodes", [](TestGraph& g) { g.summary.nodes = int64_t{1} << 32; },
       "nodes: is 4294967296, expected 0..4294967295"},
      {"half a row", [](TestGraph& g) { g.parts[0].bytes.pop_back(); },
       "section in_offsets: bytes: 87 were written, which are no whole rows of 8"},
      {"a section twice", [](TestGraph& g) { g.parts.push_back(g.parts[0]); }, "section in_offsets: is written twice"},
      {"a section of a set",
       [](TestGraph& g) { g.Add(K::kEdgeSource, ElementType::kUint32, std::vector<uint32_t>(20)); },
       "section edge_source: has no place"},
      {"a summary", [](TestGraph& g) { g.Add(K::kSummary, ElementType::kBytes, std::vector<char>(1)); },
       "section summary: is written by Finish"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    TestGraph graph = MakeTestGraph({.nodes = 10, .edges = 20});
    c.spoil(graph);
    const absl::Status status = graph.Write(temp.path());
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.want));
    EXPECT_FALSE(fs::exists(temp.path() / Graph::kFileName));
  }
}

TEST(GraphWriter, EveryByteIsAccountedFor) {
  TempDir temp;
  TestGraph graph = MakeTestGraph({.nodes = 10, .edges = 20});
  ASSERT_TRUE(graph.Write(temp.path()).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), {}), 1) << "nothing but the store";
  const std::string bytes = *ReadFile(temp.path() / Graph::kFileName);
  std::string expected(bytes.size(), '\0');
  StoreImage store(bytes);
  const FileHeader header = store.header();
  std::memcpy(expected.data(), &header, sizeof header);
  uint64_t at = sizeof header;
  for (const SectionEntry& e : store.entries()) {
    EXPECT_EQ(e.offset % (e.block_bytes == kPageBytes ? kPageBytes : kSectionAlignment), 0u);
    std::memcpy(expected.data() + at, &e, sizeof e);
    at += sizeof e;
    std::memcpy(expected.data() + e.offset, bytes.data() + e.offset, e.bytes);
  }
  EXPECT_TRUE(bytes == expected) << "gaps are zero";
  store.Seal();
  EXPECT_TRUE(store.bytes() == bytes) << "checksums are true";

  TestGraph again = MakeTestGraph({.nodes = 10, .edges = 20});
  ASSERT_TRUE(again.Write(temp.path() / "again").ok());
  EXPECT_TRUE(*ReadFile(temp.path() / "again" / Graph::kFileName) == bytes) << "equal graphs, equal files";
}

TEST(GraphWriter, ARenameThatFailsIsTheMachines) {
  TempDir temp;
  fs::create_directories(temp.path() / Graph::kFileName / "in its way");
  TestGraph graph = MakeTestGraph({.nodes = 10, .edges = 20});
  const absl::Status status = graph.Write(temp.path());
  EXPECT_TRUE(IsTransient(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("graph.pfg: cannot rename "));
}

TEST(GraphWriter, ObeysAStop) {
  TempDir temp;
  std::stop_source stop;
  auto writer = GraphWriter::Create(temp.path(), stop.get_token());
  ASSERT_TRUE(writer.ok());
  const std::vector<uint32_t> rows(1 << 20);
  ASSERT_TRUE((*writer)->Write(K::kInNeighbors, ElementType::kUint32, std::span<const uint32_t>(rows)).ok());
  stop.request_stop();
  EXPECT_EQ((*writer)->Append(std::as_bytes(std::span(rows))).code(), absl::StatusCode::kCancelled);
  GraphSummary summary;
  EXPECT_EQ((*writer)->Finish(summary).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(fs::exists(temp.path() / Graph::kFileName));
  for (const auto& entry : fs::directory_iterator(temp.path())) {
    EXPECT_LE(fs::file_size(entry.path()), rows.size() * sizeof(uint32_t) + kFirstSection) << entry.path();
  }
}

}  // namespace
}  // namespace permafrost::data
