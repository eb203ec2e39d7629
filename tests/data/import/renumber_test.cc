// Compares imports that renumber the nodes with imports in the source's order. If the stored map is undone, both are
// the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/random.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/graph_folder.h"
#include "data/sampling/sample_query.h"
#include "data/store/format.h"
#include "data/store/graph.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr uint64_t kNodes = 300;
constexpr size_t kDrawnEdges = 2500;

// Random values for files. Each object draws the same values.
class Draws {
 public:
  uint64_t Below(uint64_t n) { return random_.Below(n); }
  std::vector<int64_t> Ends() {
    std::vector<int64_t> ends(2 * kDrawnEdges);
    // These ends give hubs, self-loops and parallel edges. The last nodes have no edges.
    for (int64_t& end : ends) end = static_cast<int64_t>(std::min(Below(kNodes - 10), Below(kNodes - 10)));
    return ends;
  }
  std::vector<float> Floats(size_t n) {
    std::vector<float> out(n);
    for (float& value : out) value = static_cast<float>(Below(1000)) / 8;
    return out;
  }
  std::string Lines(size_t n, const std::function<std::string(size_t)>& line) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += line(i) + "\n";
    return out;
  }

 private:
  SplitMix64 random_{4, 0};
};

Files NpySource(bool sparse) {
  Draws d;
  Files files = {
      {"edge_index.npy", Npy<int64_t>("<i8", absl::StrCat("(2, ", kDrawnEdges, ")"), d.Ends())},
      {"edge_weight.npy", Npy<float>("<f4", absl::StrCat("(", kDrawnEdges, ",)"), d.Floats(kDrawnEdges))},
      {"edge_feat.npy", Npy<float>("<f4", absl::StrCat("(", kDrawnEdges, ", 2)"), d.Floats(2 * kDrawnEdges))},
      {"node_label.npy", Npy<float>("<f4", absl::StrCat("(", kNodes, ", 2)"), d.Floats(2 * kNodes))}};
  std::vector<int64_t> times(kDrawnEdges);
  for (int64_t& time : times) time = static_cast<int64_t>(d.Below(99));
  files["edge_time.npy"] = Npy<int64_t>("<i8", absl::StrCat("(", kDrawnEdges, ",)"), times);
  if (!sparse) {
    files["node_feat.npy"] = Npy<float>("<f4", absl::StrCat("(", kNodes, ", 700)"), d.Floats(kNodes * 700));
  }
  return files;
}

Files OgbSource(bool sparse) {
  Draws d;
  const std::vector<int64_t> ends = d.Ends();
  Files files = {
      {"raw/num-node-list.csv", absl::StrCat(kNodes, "\n")},
      {"raw/edge.csv", d.Lines(kDrawnEdges, [&](size_t i) { return absl::StrCat(ends[2 * i], ",", ends[2 * i + 1]); })},
      {"raw/edge-weight.csv", d.Lines(kDrawnEdges, [&](size_t) { return absl::StrCat(d.Below(50)); })},
      {"raw/node-label.csv", d.Lines(kNodes, [&](size_t i) { return i % 5 == 0 ? "" : absl::StrCat(d.Below(4)); })}};
  if (sparse) {
    files["raw/node-feat-sparse.csv"] =
        d.Lines(900, [&](size_t i) { return absl::StrCat(i / 3, ",", i % 3 + 3 * d.Below(20), ",", 1 + d.Below(9)); });
  } else {
    files["raw/node-feat.csv"] =
        d.Lines(kNodes, [&](size_t) { return absl::StrCat(d.Below(90), ",", d.Below(9), ",7"); });
  }
  for (size_t split = 0; split < 3; ++split) {
    files[absl::StrCat("split/plain/", AbslView(kSplitNames.Name(static_cast<Split>(split))), ".csv")] =
        d.Lines(30, [&](size_t i) { return absl::StrCat(7 * i + split); });
  }
  return files;
}

std::string EdgeList(const std::function<std::string(int64_t)>& name) {
  Draws d;
  const std::vector<int64_t> ends = d.Ends();
  return d.Lines(kDrawnEdges, [&](size_t i) {
    return absl::StrCat(name(ends[2 * i]), ",", name(ends[2 * i + 1]), ",", d.Below(50));
  });
}

// Returns the bytes of a part of a column. Bytes compare equal even for NaN.
template <class T>
std::string BytesOf(const Column<T>& column, uint64_t begin, uint64_t end) {
  EXPECT_TRUE(column.Touch(begin, end));
  return {reinterpret_cast<const char*>(column.data() + begin), (end - begin) * sizeof(T)};
}

struct NodeContent {
  // The edges of each direction, as neighbour, weight, time and row of edge_features. Edges of one neighbour keep
  // their order.
  using Edge = std::tuple<NodeId, float, int64_t, uint64_t>;
  std::vector<Edge> in, out;
  std::string label, features;
  std::array<bool, 3> splits{};
  std::string name;
  bool operator==(const NodeContent&) const = default;
};

// Returns the contents by row of the source. `old_of_new` maps the rows of `graph` to rows of the source.
std::vector<NodeContent> ContentOf(const Graph& graph, const std::vector<NodeId>& old_of_new, bool names) {
  const GraphView& view = graph.view();
  std::vector<NodeContent> out(view.nodes);
  const auto edges = [&](const Adjacency& a, NodeId row) {
    std::vector<NodeContent::Edge> list;
    bool ok = true;
    const auto extent = a.Of(row, ok);
    EXPECT_TRUE(ok);
    for (uint64_t e = extent.begin; e < extent.end; ++e) {
      EXPECT_TRUE(a.neighbors.Touch(e, e + 1));
      EXPECT_TRUE(e == extent.begin || a.neighbors[e - 1] <= a.neighbors[e]) << "neighbours rise";
      list.emplace_back(old_of_new[a.neighbors[e]], a.weights.empty() ? 1 : a.weights[e],
                        a.timestamps.empty() ? 0 : a.timestamps[e], a.edge_ids.empty() ? 0 : a.edge_ids[e]);
    }
    std::ranges::stable_sort(list, {}, [](const auto& edge) { return std::get<0>(edge); });
    return list;
  };
  for (NodeId row = 0; row < view.nodes; ++row) {
    NodeContent& node = out[old_of_new[row]];
    node.in = edges(view.in, row);
    if (view.out.present()) node.out = edges(view.out, row);
    const auto targets = static_cast<uint64_t>(view.num_targets);
    node.label = BytesOf(view.labels, row * targets, (row + 1) * targets);
    if (const auto* dense = std::get_if<DenseFeatures>(&view.node_features)) {
      node.features = BytesOf(dense->bytes, dense->OffsetOf(row), dense->OffsetOf(row) + dense->row_bytes());
    } else if (const auto* sparse = std::get_if<SparseFeatures>(&view.node_features)) {
      EXPECT_TRUE(sparse->offsets.Touch(row, row + uint64_t{2}));
      const uint64_t begin = sparse->offsets[row], end = sparse->offsets[row + uint64_t{1}];
      node.features = BytesOf(sparse->columns, begin, end) + BytesOf(sparse->values, begin, end);
    }
    if (names) node.name = *NameOf(graph.names(), row);
  }
  for (size_t split = 0; split < 3; ++split) {
    const auto rows = Values(view.splits[split]);
    EXPECT_TRUE(std::ranges::is_sorted(rows));
    for (const NodeId row : rows) out[old_of_new[row]].splits[split] = true;
  }
  return out;
}

class Renumbered : public ::testing::Test {
 protected:
  // Writes the source and returns options that import it in the source's order.
  ImportOptions Options(const Files& files) {
    fs::remove_all(temp_.path() / "source");
    WriteFiles(temp_.path() / "source", files);
    return {.source = temp_.path() / "source"};
  }
  ImportOptions Options(const std::string& edge_list, NodeIds ids) {
    WriteText(temp_.path() / "edges.csv", edge_list);
    ImportOptions options{.source = temp_.path() / "edges.csv"};
    options.edge_list.node_ids = ids;
    return options;
  }

  void ExpectSame(ImportOptions options, const std::string& why) {
    const auto plain = MakeGraph(temp_.path() / "plain", options);
    ASSERT_NE(plain, nullptr) << why;
    std::vector<NodeId> rows(plain->view().nodes);
    std::iota(rows.begin(), rows.end(), NodeId{0});
    const bool named = plain->summary().named;
    const auto want = ContentOf(*plain, rows, named);
    for (const NodeOrder order : {NodeOrder::kDegree, NodeOrder::kCommunity}) {
      options.order = order;
      const auto graph = MakeGraph(temp_.path() / "ordered", options);
      const std::string what = absl::StrCat(why, ", ", AbslView(kNodeOrderNames.Name(order)));
      ASSERT_NE(graph, nullptr) << what;
      EXPECT_EQ(graph->summary().order, order);
      EXPECT_TRUE(graph->summary().named);
      // Finds the source's row of each row by its name.
      std::map<std::string, NodeId> row_of;
      for (const NodeId row : rows) row_of[*NameOf(plain->names(), row)] = row;
      std::vector<NodeId> old_of_new;
      old_of_new.reserve(rows.size());
      for (const NodeId row : rows) old_of_new.push_back(row_of.at(*NameOf(graph->names(), row)));
      EXPECT_NE(old_of_new, rows) << what;
      const auto is = ContentOf(*graph, old_of_new, named);
      for (size_t node = 0; node < want.size(); ++node) ASSERT_TRUE(is[node] == want[node]) << what << " " << node;
      GraphSummary summary = graph->summary();
      EXPECT_EQ(summary.edges, plain->summary().edges) << what;
      EXPECT_EQ(summary.self_loops, plain->summary().self_loops) << what;
      EXPECT_EQ(summary.isolated_nodes, plain->summary().isolated_nodes) << what;
      EXPECT_EQ(summary.max_degree, plain->summary().max_degree) << what;
      EXPECT_EQ(summary.duplicate_edges, plain->summary().duplicate_edges) << what;
      EXPECT_EQ(summary.num_missing_labels, plain->summary().num_missing_labels) << what;
      EXPECT_EQ(summary.split_nodes, plain->summary().split_nodes) << what;
      EXPECT_EQ(summary.node_features.max, plain->summary().node_features.max) << what;
      EXPECT_EQ(Values(graph->view().edge_features.bytes), Values(plain->view().edge_features.bytes)) << what;
      if (order != NodeOrder::kDegree) continue;
      // Hot rows come first: the number of in-lists that hold a row falls from row to row.
      std::vector<int> drawn(graph->view().nodes);
      for (const NodeId neighbor : Values(graph->view().in.neighbors)) ++drawn[neighbor];
      EXPECT_TRUE(std::ranges::is_sorted(drawn, std::greater())) << what;
    }
  }

  TempDir temp_;
};

TEST_F(Renumbered, EveryFormatUndoneByItsMapIsTheSourcesOrder) {
  const struct {
    const char* why;
    bool inverses, coalesce, out;
  } kEdgesCases[] = {{"symmetric", true, false, false},
                     {"symmetric, coalesced", true, true, false},
                     {"directed", false, false, true},
                     {"directed, coalesced", false, true, true},
                     {"directed, in-edges only", false, false, false}};
  for (const auto& c : kEdgesCases) {
    const auto check = [&](ImportOptions options, const std::string& what) {
      options.inverse_edges = c.inverses ? InverseEdges::kAdd : InverseEdges::kKeep;
      options.coalesce = c.coalesce;
      options.keep_out_edges = c.out;
      ExpectSame(options, absl::StrCat(what, ", ", c.why));
    };
    check(Options(NpySource(false)), "npy");
    check(Options(OgbSource(false)), "ogb-nodes");
    check(Options(OgbSource(true)), "ogb-nodes, sparse features");
    check(Options(EdgeList([](int64_t id) { return absl::StrCat(id); }), NodeIds::kRows), "edge list of rows");
    check(Options(EdgeList([](int64_t id) { return absl::StrCat(id * 1'000'003 + 5); }), NodeIds::kNumbers),
          "edge list of numbers");
    check(Options(EdgeList([](int64_t id) { return absl::StrCat("user ", id); }), NodeIds::kText), "edge list of text");
  }
}

TEST_F(Renumbered, MatricesAndFeaturesThatAreConverted) {
  for (const FeatureType type : {FeatureType::kBfloat16, FeatureType::kInt8}) {
    ImportOptions options = Options(NpySource(false));
    options.feature_type = type;
    ExpectSame(options, std::string(kFeatureTypeNames.Name(type)));
  }
}

TEST_F(Renumbered, TheStoreIsTheSameInLittleMemory) {
  // 300 rows of 70,000 floats take 84 MB, five times the memory.
  Files files = NpySource(true);
  Draws d;
  files["node_feat.npy"] = Npy<float>("<f4", "(300, 70000)", d.Floats(kNodes * 70'000));
  ImportOptions options = Options(files);
  options.order = NodeOrder::kCommunity;
  ASSERT_TRUE(ImportGraphInto(temp_.path() / "much", options).ok());
  options.memory_bytes = uint64_t{16} << 20;
  ASSERT_TRUE(ImportGraphInto(temp_.path() / "little", options).ok());
  const auto much = ReadFile(temp_.path() / "much/graph.pfg"), little = ReadFile(temp_.path() / "little/graph.pfg");
  ASSERT_TRUE(much.ok() && little.ok());
  EXPECT_TRUE(*much == *little);
}

TEST_F(Renumbered, ErrorsSpeakOfTheSourcesNodes) {
  // Node 2 has the highest out-degree and becomes row 0.
  ImportOptions options = Options({{"raw/num-node-list.csv", "4\n"},
                                   {"raw/edge.csv", "2,0\n2,1\n2,3\n"},
                                   {"raw/node-feat-sparse.csv", "0,1\n2,5\n2,5\n"}});
  options.order = NodeOrder::kDegree;
  EXPECT_THAT(ImportGraphInto(temp_.path() / "store", options).status().message(),
              HasSubstr("node 2: feature 5 stands twice"));
  options = Options("2,0,1\n2,1,3e38\n2,1,3e38\n", NodeIds::kRows);
  options.inverse_edges = InverseEdges::kKeep;
  options.order = NodeOrder::kDegree;
  options.coalesce = true;
  EXPECT_THAT(ImportGraphInto(temp_.path() / "store", options).status().message(), HasSubstr("between nodes 1 and 2"));
}

TEST_F(Renumbered, TooManyNodesForTheirOrderAreRefused) {
  ImportOptions options = Options("0,1\n", NodeIds::kRows);
  options.edge_list.num_nodes = 1000;
  ImportLimits limits;
  limits.memory_bytes = 12'000;
  EXPECT_TRUE(ImportGraphInto(temp_.path() / "store", options, limits).ok());
  options.order = NodeOrder::kDegree;
  EXPECT_THAT(
      ImportGraphInto(temp_.path() / "store", options, limits).status().message(),
      HasSubstr("edges: 1000 nodes take more memory than an import's limit, 12000 bytes (750 at 16 bytes each)"));
}

TEST_F(Renumbered, SamplesAreAskedForAndToldByTheSourcesNames) {
  ImportOptions options = Options("7,9\n7,8\n7,6\n6,9\n", NodeIds::kRows);
  options.inverse_edges = InverseEdges::kKeep;
  options.order = NodeOrder::kDegree;
  const auto graph = MakeGraph(temp_.path() / "store", options);
  ASSERT_NE(graph, nullptr);
  SampleQuery query{.nodes = {}, .names = {"9", "0"}, .kind = NeighborSamplingOptions{.fan_outs = {-1}}};
  const auto sample = Sample(*graph, query, 1);
  ASSERT_TRUE(sample.ok()) << sample.status();
  // Node 7 is row 0 and node 6 is row 1. The others follow in their order.
  EXPECT_THAT(sample->nodes, ElementsAre(9, 2));
  EXPECT_THAT(sample->names, ElementsAre(Pair(0, "7"), Pair(1, "6"), Pair(2, "0"), Pair(9, "9")));
  query.names = {"9", "10", "nine"};
  const auto violations = GetViolations(Sample(*graph, query, 1).status());
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "names[1]");
  EXPECT_EQ(violations[1].description, "'nine' is none of the graph's 10 nodes");
  query.names = {"9", "9"};
  EXPECT_EQ(GetViolations(Sample(*graph, query, 1).status())[0].field, "names[1]");
  query.nodes = {1};
  EXPECT_EQ(GetViolations(Sample(*graph, query, 1).status())[0].field, "names");
}

TEST_F(Renumbered, NamesOfTextAndOfRowsAreFoundToo) {
  ImportOptions options = Options("a b,\"c\nd,a b\n", NodeIds::kText);
  options.edge_list.quote = '\0';
  options.order = NodeOrder::kDegree;
  auto graph = MakeGraph(temp_.path() / "store", options);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(*NameOf(graph->names(), 0), "a b");
  EXPECT_THAT(*FindNames(*graph, std::vector<std::string>{"d", "a b", "d"}), ElementsAre(2, 0, 2));
  graph = MakeGraph(temp_.path() / "store", Options("3,1\n", NodeIds::kRows));
  EXPECT_THAT(*FindNames(*graph, std::vector<std::string>{"2"}), ElementsAre(2)) << "rows, where there are no names";
  EXPECT_FALSE(FindNames(*graph, std::vector<std::string>{"4"}).ok());
  EXPECT_EQ(*NameOf(graph->names(), 2), "2");
}

}  // namespace
}  // namespace permafrost::data
