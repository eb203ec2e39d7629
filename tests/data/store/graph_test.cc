#include "data/store/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "data/graph_fixture.h"
#include "data/ogb_folder.h"
#include "data/store/store_sections.h"
#include "data/store_image.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using K = SectionKind;

class GraphTest : public ::testing::Test {
 protected:
  fs::path path() const { return temp_.path() / "store" / Graph::kFileName; }
  std::shared_ptr<const Graph> MakeStore(TestGraph& graph) const {
    const absl::Status written = graph.Write(path().parent_path());
    EXPECT_TRUE(written.ok()) << written;
    auto opened = Open();
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  absl::StatusOr<std::shared_ptr<const Graph>> Open() const { return Graph::Open(path().parent_path()); }

  TempDir temp_;
};

TEST_F(GraphTest, EverySectionComesBackAsItWasWritten) {
  const struct {
    const char* why;
    TestGraphOptions options;
  } kCases[] = {
      {"directed, dense", {}},
      {"symmetric, sparse, named by text", {.symmetric = true, .features = DataType::kNone, .text_names = true}},
      {"int32", {.nodes = 100, .edges = 300, .features = DataType::kInt32}},
      {"float16", {.nodes = 100, .edges = 300, .features = DataType::kFloat16}},
      {"bfloat16", {.nodes = 100, .edges = 300, .features = DataType::kBfloat16}},
      {"uint8", {.nodes = 100, .edges = 300, .features = DataType::kUint8}},
      {"int64", {.nodes = 100, .edges = 300, .features = DataType::kInt64}},
      {"int8", {.nodes = 100, .edges = 300, .features = DataType::kInt8}},
      {"no edges", {.nodes = 5, .edges = 0}},
      {"one node", {.nodes = 1, .edges = 1}},
      {"nothing", {.nodes = 0, .edges = 0, .text_names = true}},
      {"nothing, sparse", {.nodes = 0, .edges = 0, .symmetric = true, .features = DataType::kNone}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TestGraph written = MakeTestGraph(c.options);
    const auto graph = MakeStore(written);
    ASSERT_NE(graph, nullptr);
    std::map<K, std::string> read;
    ForEachColumn(*graph, [&](K kind, const auto& column) {
      EXPECT_TRUE(column.Touch(0, column.size())) << column.status();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(column.data()) % 64, 0u);
      const auto bytes = std::as_bytes(std::span(column.data(), column.size()));
      read[kind] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    if (const auto* dense = std::get_if<DenseFeatures>(&graph->view().node_features)) {
      std::string& rows = read[K::kNodeFeatures];
      std::string packed;
      for (uint64_t row = 0; row < c.options.nodes; ++row)
        packed += rows.substr(dense->OffsetOf(row), dense->row_bytes());
      rows = packed;
    }
    for (const TestGraph::Part& part : written.parts) {
      EXPECT_TRUE(read[part.kind] == part.bytes) << kSectionNames.Name(part.kind);
    }
    const GraphView& view = graph->view();
    EXPECT_EQ(view.nodes, c.options.nodes);
    EXPECT_EQ(view.edges, c.options.edges);
    EXPECT_EQ(view.num_targets, 2);
    EXPECT_EQ(std::get<DenseFeatures>(view.positions).width, 4);
    EXPECT_EQ(view.in.offsets.size(), c.options.nodes + 1) << "of an empty graph too";
    EXPECT_EQ(view.out.offsets.data() == view.in.offsets.data(), c.options.symmetric);
    if (const auto* dense = std::get_if<DenseFeatures>(&view.node_features)) {
      EXPECT_EQ(dense->type, c.options.features);
      EXPECT_EQ(dense->width, 3);
      EXPECT_EQ(view.edge_features.type, written.summary.edge_features.type);
    } else {
      EXPECT_EQ(std::get<SparseFeatures>(view.node_features).width, 50);
      EXPECT_EQ(view.edge_features.type, DataType::kNone);
    }
    EXPECT_EQ(graph->summary().store_bytes, fs::file_size(path()));
    EXPECT_EQ(graph->mapped_bytes(), fs::file_size(path()));
    EXPECT_EQ(graph->summary().adjacency_bytes,
              (c.options.symmetric ? 1 : 2) * ((c.options.nodes + 1) * 8 + c.options.edges * 24));
    EXPECT_EQ(graph->summary().adjacency_bytes, written.summary.adjacency_bytes);
    EXPECT_EQ(graph->summary().store_bytes, written.summary.store_bytes);
    EXPECT_TRUE(graph->CheckIntact().ok()) << graph->CheckIntact();
    EXPECT_TRUE(graph->VerifyAll(nullptr).ok()) << graph->VerifyAll(nullptr);
    EXPECT_TRUE(ReadEverything(*graph));
  }
}

TEST_F(GraphTest, TheBareMinimum) {
  TestGraph g;
  g.summary.nodes = 2;
  g.summary.edges = 1;
  g.Add(K::kInOffsets, ElementType::kUint64, std::vector<uint64_t>{0, 0, 1});
  g.Add(K::kInNeighbors, ElementType::kUint32, std::vector<uint32_t>{1});
  const auto graph = MakeStore(g);
  ASSERT_NE(graph, nullptr);
  bool ok = true;
  EXPECT_EQ(graph->view().in.Of(1, ok).size(), 1u);
  EXPECT_EQ(graph->view().in.Of(0, ok).size(), 0u);
  EXPECT_TRUE(ok);
  EXPECT_FALSE(graph->view().out.present());
  EXPECT_TRUE(graph->view().in.weights.empty());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(graph->view().node_features));
  EXPECT_EQ(graph->view().edge_features.type, DataType::kNone);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(graph->view().positions));
  EXPECT_TRUE(graph->view().splits[0].empty());
  EXPECT_TRUE(graph->VerifyAll(nullptr).ok());
}

TEST_F(GraphTest, TheSummaryComesBackToTheBit) {
  TestGraph g = MakeTestGraph({.nodes = 10, .edges = 20});
  constexpr double kInf = std::numeric_limits<double>::infinity();
  g.summary.self_loops = 1;
  g.summary.isolated_nodes = 2;
  g.summary.max_degree = 3;
  g.summary.duplicate_edges = 4;
  g.summary.inverse_edges_added = true;
  g.summary.num_missing_labels = 5;
  g.summary.min_label = -0.1;
  g.summary.max_label = kInf;
  g.summary.integer_labels = true;
  g.summary.split_name = "a \"name\"";
  g.summary.node_features.min = {0.1, -kInf, std::nan("")};
  g.summary.node_features.max = {1e308, kInf, 5e-324};
  const auto graph = MakeStore(g);
  ASSERT_NE(graph, nullptr);
  const GraphSummary& s = graph->summary();
  EXPECT_EQ(GraphSummaryToJson(s), GraphSummaryToJson(g.summary));
  EXPECT_EQ(s.self_loops + s.isolated_nodes + s.max_degree + s.duplicate_edges + s.num_missing_labels, 15);
  EXPECT_TRUE(s.inverse_edges_added && s.integer_labels && s.weighted && s.timestamped && s.named && !s.symmetric);
  EXPECT_EQ(s.min_label, -0.1);
  EXPECT_EQ(s.max_label, kInf);
  EXPECT_EQ(s.split_name, "a \"name\"");
  EXPECT_EQ(s.split_nodes, g.summary.split_nodes);
  EXPECT_EQ(s.node_features.min[1], -kInf);
  EXPECT_TRUE(std::isnan(s.node_features.min[2]));
  EXPECT_EQ(s.node_features.max, g.summary.node_features.max);
}

TEST_F(GraphTest, MissingFile) { EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound); }

TEST_F(GraphTest, VerifyAllTellsOfItsProgressAndMayBeStopped) {
  TestGraph g = MakeTestGraph({});
  const auto graph = MakeStore(g);
  uint64_t last = 0, all = 0;
  const auto progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
    return true;
  };
  ASSERT_TRUE(graph->VerifyAll(progress).ok());
  EXPECT_EQ(last, all);
  EXPECT_GT(all, graph->summary().adjacency_bytes);
  EXPECT_EQ(graph->VerifyAll([](uint64_t, uint64_t) { return false; }).code(), absl::StatusCode::kCancelled);
}

// These files have correct checksums but inconsistent contents, as from a faulty writer or an attacker.
TEST_F(GraphTest, WhatDoesNotAddUpIsNamed) {
  TestGraph g = MakeTestGraph({.nodes = 10, .edges = 20, .text_names = true});
  ASSERT_NE(MakeStore(g), nullptr);
  const std::string dense = *ReadFile(path());
  g = MakeTestGraph({.nodes = 10, .edges = 20, .symmetric = true, .features = DataType::kNone});
  ASSERT_NE(MakeStore(g), nullptr);
  const std::string sparse = *ReadFile(path());
  g = MakeTestGraph({.nodes = 9000, .edges = 20});
  ASSERT_NE(MakeStore(g), nullptr);
  const std::string large = *ReadFile(path());

  using Damage = std::function<void(StoreImage&)>;
  const auto edit_header = [](void (*edit)(FileHeader&)) -> Damage {
    return [edit](StoreImage& s) {
      FileHeader h = s.header();
      edit(h);
      s.set_header(h);
    };
  };
  const auto edit_entry = [](K kind, void (*edit)(SectionEntry&)) -> Damage {
    return [kind, edit](StoreImage& s) {
      SectionEntry e = s.entry(kind);
      edit(e);
      s.set_entry(kind, e);
    };
  };
  const auto set64 = [](K kind, size_t index, uint64_t value) -> Damage {
    return [=](StoreImage& s) { s.SetElement(kind, index, value); };
  };
  const auto set32 = [](K kind, size_t index, uint32_t value) -> Damage {
    return [=](StoreImage& s) { s.SetElement(kind, index, value); };
  };
  // Replaces a word of the summary's JSON by another of equal length.
  const auto say = [](std::string_view word, std::string_view other) -> Damage {
    return [=](StoreImage& s) {
      const size_t at = s.bytes().find(word, s.entry(K::kSummary).offset);
      ASSERT_NE(at, std::string::npos) << word;
      s.bytes().replace(at, word.size(), other);
    };
  };
  const struct {
    const char* why;
    const std::string& bytes;
    Damage damage;
    bool at_open;
    const char* want;
  } kCases[] = {
      {"an older version", dense, edit_header([](FileHeader& h) { h.version = 0; }), true,
       "version: is 0, expected 1..3"},
      {"version 1, which had sets only", dense, edit_header([](FileHeader& h) { h.version = 1; }), true,
       "layout: is 1 (graph_set), expected 2 (graph)"},
      {"a set of graphs", dense, edit_header([](FileHeader& h) { h.layout = StoreLayout::kGraphSet; }), true,
       "layout: is 1 (graph_set), expected 2 (graph)"},
      {"an unknown layout", dense, edit_header([](FileHeader& h) { h.layout = static_cast<StoreLayout>(3); }), true,
       "layout: is 3 (unknown), expected 2 (graph)"},
      {"two graphs", dense, edit_header([](FileHeader& h) { h.graphs = 2; }), true, "graphs: is 2, expected 1"},
      {"a node more", dense, edit_header([](FileHeader& h) { h.nodes += 1; }), true,
       "section summary: nodes: is 10, expected the header's 11"},
      {"an edge more", dense, edit_header([](FileHeader& h) { h.edges += 1; }), true,
       "section summary: edges: is 20, expected the header's 21"},
      {"a target more", dense, edit_header([](FileHeader& h) { h.targets += 1; }), true,
       "section summary: num_targets: is 2, expected the header's 3"},
      {"another type", dense, edit_entry(K::kInWeights, [](SectionEntry& e) { e.type = ElementType::kInt32; }), true,
       "section in_weights: type: is int32, expected float32"},
      {"features of another type", dense,
       edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.type = ElementType::kInt32; }), true,
       "section node_features: type: is int32, expected the summary's float32"},
      {"features of no type", dense,
       edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.type = ElementType::kUint32; }), true,
       "section node_features: type: is uint32, expected a type of dense features"},
      {"blocks of another size", dense, edit_entry(K::kLabels, [](SectionEntry& e) { e.block_bytes = 512; }), true,
       "section labels: block_bytes: is 512, expected 4096 or 65536"},
      {"rows in groups without a checksum a page", dense,
       edit_entry(K::kLabels,
                  [](SectionEntry& e) {
                    e.groups = {1, 4096};
                  }),
       true, "section labels: block_bytes: is 65536, expected 4096, beside groups of rows"},
      {"groups that hold no rows", dense, edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.groups.rows = 0; }),
       true, "section node_features: groups: is 0 rows of 12 in 4096 bytes, expected whole pages that hold them"},
      {"groups larger than their pages", dense,
       edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.groups.rows = 400; }), true,
       "section node_features: groups: is 400 rows of 12 in 4096 bytes, expected whole pages that hold them"},
      {"groups of other rows", dense, edit_entry(K::kNodeFeatures, [](SectionEntry& e) { e.groups.rows = 7; }), true,
       "section node_features: bytes: is "},
      {"more reserved bits", dense, edit_entry(K::kLabels, [](SectionEntry& e) { e.reserved2 = 1; }), true,
       "section labels: reserved2: is 1, expected 0"},
      {"a section of the other layout", dense,
       edit_entry(K::kInWeights, [](SectionEntry& e) { e.kind = K::kEdgeSource; }), true,
       "section edge_source: has no place in the store of one graph"},
      {"a section twice", dense, edit_entry(K::kInWeights, [](SectionEntry& e) { e.kind = K::kInNeighbors; }), true,
       "section in_neighbors: stands twice"},
      {"a symmetric graph with out_offsets", dense, say("\"symmetric\":false", "\"symmetric\":true "), true,
       "section out_offsets: is there beside a symmetric graph's in_offsets"},
      {"names that are not told of", dense, say("\"named\":true,", "\"named\":null,"), true, "section summary: "},
      {"a summary that is no JSON", dense, say("{", "x"), true, "section summary: "},
      {"a type unknown", dense, say("float32", "float33"), true, "type: \"float33\" is none of none, int32"},
      {"no such sparse features", sparse, say("\"width\":50", "\"width\":-1"), true,
       "section summary: node_features.width: is -1"},
      {"nonzeros that are not there", sparse, say("\"node_feature_nonzeros\":20", "\"node_feature_nonzeros\":21"), true,
       "section summary: node_feature_nonzeros: is 21, expected 20"},
      {"positions of other columns", dense, say("\"position_columns\":4", "\"position_columns\":3"), true,
       "section positions: width: is 4, expected 3"},
      {"positions of another type", dense,
       edit_entry(K::kPositions, [](SectionEntry& e) { e.type = ElementType::kInt32; }), true,
       "section positions: type: is int32, expected float32"},
      {"positions that are not told of", dense, say("\"position_columns\":4", "\"position_colums\" :4"), true,
       "section positions: width: is 4, expected 0"},
      {"a split that is smaller", dense, say("\"train_nodes\":4", "\"train_nodes\":3"), true,
       "section summary: split_nodes.train: is 3, expected 4"},
      {"links that are fewer", dense, say("\"links\":5,", "\"links\":4,"), true,
       "section summary: links.train: is 4, expected 5"},
      {"links that are not told of", dense, say("\"given\":true,", "\"given\":null,"), true, "section summary: "},
      {"negatives of other links", dense, say("\"negatives\":4,", "\"negatives\":3,"), true,
       "section valid_negatives: width: is 4, expected 3"},
      {"negative negatives", dense, say("\"pairs\":6", "\"pairs\":-"), true, "section summary: "},
      {"first offset not 0", dense, set64(K::kInOffsets, 0, 1), false,
       "section in_offsets: bytes 0..87: content: first offset: is 1, expected 0"},
      {"last offset not the count", dense, set64(K::kOutOffsets, 10, 21), false,
       "section out_offsets: bytes 0..87: content: last offset: is 21, expected 20"},
      {"offsets beyond all", dense, set64(K::kInOffsets, 5, UINT64_MAX), false,
       "section in_offsets: bytes 0..87: content"},
      {"offsets that fall from one block into the next", large,
       [](StoreImage& s) {
         for (size_t i = 8192; i < 9000; ++i) s.SetElement<uint64_t>(K::kInOffsets, i, 3);
         s.SetElement<uint64_t>(K::kInOffsets, 8191, 7);
         for (size_t i = 1; i < 8191; ++i) s.SetElement<uint64_t>(K::kInOffsets, i, 2);
       },
       false, "section in_offsets: bytes 65536..72007: content: offset 8192: is 3, expected at least 7"},
      {"offsets of a block beyond the edges, risen within it", large,
       [](StoreImage& s) { s.SetElement<uint64_t>(K::kInOffsets, 8191, 99); }, false,
       "section in_offsets: bytes 0..65535: content: offset 8191: is 99, expected at most 20"},
      {"a neighbour that is no node", dense, set32(K::kInNeighbors, 19, 10), false,
       "section in_neighbors: bytes 0..79: content: node of edge 19: is 10, expected below 10"},
      {"out, too", dense, set32(K::kOutNeighbors, 0, UINT32_MAX), false, "content: node of edge 0: is 4294967295"},
      {"an edge's row that is not there", dense, set64(K::kInEdgeIds, 3, 20), false,
       "section in_edge_ids: bytes 0..159: content: row of edge 3: is 20, expected below 20"},
      {"a split's node", dense, set32(K::kValidNodes, 1, 10), false,
       "section valid_nodes: bytes 0..11: content: node 1: is 10, expected below 10"},
      {"a column of sparse features", sparse, set32(K::kNodeFeatureColumns, 7, 50), false,
       "section node_feature_columns: bytes 0..79: content: column 7: is 50, expected below 50"},
      {"rows of sparse features", sparse, set64(K::kNodeFeatureOffsets, 10, 19), false,
       "section node_feature_offsets: bytes 0..87: content: last offset: is 19, expected 20"},
      {"names", dense, set64(K::kNodeNameOffsets, 10, 51), false,
       "section node_name_offsets: bytes 0..87: content: last offset: is 51, expected 50"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    StoreImage store(c.bytes);
    c.damage(store);
    store.Seal();
    WriteText(path(), store.bytes());
    const auto graph = Open();
    EXPECT_EQ(!graph.ok(), c.at_open) << graph.status();
    const absl::Status status = graph.ok() ? (*graph)->VerifyAll(nullptr) : graph.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path().string() + ": "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.want));
    if (!graph.ok()) continue;
    EXPECT_TRUE((*graph)->CheckIntact().ok()) << "nobody touched it";
    EXPECT_FALSE(ReadEverything(**graph));
    EXPECT_EQ((*graph)->CheckIntact(), status) << "a reader finds the same";
  }
}

TEST_F(GraphTest, TheContentChecksumIsOfAllButTheSummary) {
  TestGraph g = MakeTestGraph({});
  const auto first = MakeStore(g);
  ASSERT_NE(first, nullptr);
  const uint64_t whole = first->checksum(), content = first->content_checksum();
  const std::string bytes = *ReadFile(path());
  const auto reopened = [&](const std::function<void(StoreImage&)>& change) -> std::shared_ptr<const Graph> {
    StoreImage store(bytes);
    change(store);
    store.Seal();
    WriteText(path(), store.bytes());
    auto opened = Open();
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  };
  const auto said_otherwise = reopened([](StoreImage& s) {
    const std::string_view word = "\"duplicate_edges\":0";
    const size_t at = s.bytes().find(word, s.entry(K::kSummary).offset);
    ASSERT_NE(at, std::string::npos);
    s.bytes()[at + word.size() - 1] = '7';
  });
  ASSERT_NE(said_otherwise, nullptr);
  EXPECT_EQ(said_otherwise->summary().duplicate_edges, 7);
  EXPECT_NE(said_otherwise->checksum(), whole);
  EXPECT_EQ(said_otherwise->content_checksum(), content);
  const auto other = reopened([](StoreImage& s) { s.SetElement(K::kInWeights, 3, 0.25F); });
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other->content_checksum(), content);
  const auto same = reopened([](StoreImage&) {});
  ASSERT_NE(same, nullptr);
  EXPECT_EQ(same->content_checksum(), content);
}

TEST_F(GraphTest, ManyThreadsTouchAtOnce) {
  TestGraph g = MakeTestGraph({});
  ASSERT_NE(MakeStore(g), nullptr);
  StoreImage store(*ReadFile(path()));
  for (const bool damaged : {false, true}) {
    if (damaged) store.SetElement<uint32_t>(K::kInNeighbors, 19'000, 1);
    WriteText(path(), store.bytes());
    const auto graph = Open();
    ASSERT_TRUE(graph.ok());
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&graph, damaged] { EXPECT_EQ(ReadEverything(**graph), !damaged); });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ((*graph)->CheckIntact().ok(), !damaged);
  }
}

}  // namespace
}  // namespace permafrost::data
