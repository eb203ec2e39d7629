#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include "data/graph_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

class EdgeListImport : public ::testing::Test {
 protected:
  ImportOptions Options(std::string_view text) {
    WriteText(temp_.path() / "edges.csv", text);
    ImportOptions options{.source = temp_.path() / "edges.csv"};
    options.inverse_edges = InverseEdges::kKeep;
    return options;
  }
  std::shared_ptr<const Graph> Make(const ImportOptions& options) { return MakeGraph(temp_.path() / "store", options); }
  TempDir temp_;
};

TEST_F(EdgeListImport, ReadsEveryDialect) {
  const struct {
    const char* why;
    std::string text;
  } kCases[] = {
      {"commas", "0,1\n2,1\n1,2\n"},
      {"no newline at the end", "0,1\n2,1\n1,2"},
      {"CRLF", "0,1\r\n2,1\r\n1,2\r\n"},
      {"CRLF, the last line without", "0,1\r\n2,1\r\n1,2"},
      {"spaces around cells", " 0 , 1 \n2 ,1\n1, 2 \n"},
      {"tabs", "0\t1\n2\t1\n1\t2\n"},
      {"semicolons", "0;1\n2;1\n1;2\n"},
      {"runs of spaces and tabs", "0 1\n  2 \t 1\n1  2  \n"},
      {"a header", "src,dst\n0,1\n2,1\n1,2\n"},
      {"comments and empty lines, the header among them", "# SNAP\n\nsrc,dst\n0,1\n#\n2,1\n\n1,2\n\n"},
      {"a byte order mark",
       "\xef\xbb\xbf"
       "0,1\n2,1\n1,2\n"},
      {"plus signs and leading zeros", "+0,01\n000000000000000000000002,1\n1,2\n"},
      {"gzip", Gzip("0,1\n2,1\n1,2\n")},
      {"zstd", Zstd("0,1\n2,1\n1,2\n")},
      {"two zstd frames", Zstd("0,1\n2,") + Zstd("1\n1,2\n")},
  };
  for (const auto& c : kCases) {
    const auto graph = Make(Options(c.text));
    ASSERT_NE(graph, nullptr) << c.why;
    const GraphView& view = graph->view();
    EXPECT_EQ(view.nodes, 3u) << c.why;
    EXPECT_THAT(Values(view.in.offsets), ElementsAre(0, 0, 2, 3)) << c.why;
    EXPECT_THAT(Values(view.in.neighbors), ElementsAre(0, 2, 1)) << c.why;
    EXPECT_THAT(Values(view.out.offsets), ElementsAre(0, 1, 2, 3)) << c.why;
    EXPECT_THAT(Values(view.out.neighbors), ElementsAre(1, 2, 1)) << c.why;
    EXPECT_FALSE(graph->summary().weighted || graph->summary().timestamped || graph->summary().named) << c.why;
  }
}

TEST_F(EdgeListImport, SaysWhereAndWhatIsWrong) {
  const struct {
    const char* why;
    std::string text, want;
    EdgeListOptions edge_list = {};
  } kCases[] = {
      {"a letter", "0,1\n1,x\n", "edges.csv:2:2: target: \"x\" is not a node id; a whole number 0..4294967294 is"},
      {"a fraction", "0,1\n1.5,2\n", "edges.csv:2:1: source: \"1.5\" is not a node id"},
      {"an empty cell", "0,1\n,2\n", "edges.csv:2:1: source: \"\" is not a node id"},
      {"a negative row", "0,1\n1,-2\n", "edges.csv:2:2: target: -2 is outside 0..4294967294"},
      {"a negative row at the begin is no header", "-1,-2\n", "edges.csv:1:1: source: -1 is outside"},
      {"a row beyond 32 bits", "0,4294967295\n", "edges.csv:1:2: target: 4294967295 is outside 0..4294967294"},
      {"a number beyond 64 bits", "0,1\n99999999999999999999999,2\n", "edges.csv:2:1: source: 9999"},
      {"a cell too few", "0,1\n2\n", "edges.csv:2: columns: the line has 1, expected 2 (source, target)"},
      {"a cell too many", "0,1\n2,3,4\n", "edges.csv:2: columns: the line has 3, expected 2 (source, target)"},
      {"a comma at the end", "0,1\n2,3,\n", "edges.csv:2: columns: the line has 3"},
      {"lines passed over count", "# c\n\n0,1\r\n1,x\r\n", "edges.csv:4:2: target: \"x\""},
      {"no weight", "0,1,0.5\n1,2,\n", "edges.csv:2:3: weight: \"\" is not a finite number"},
      {"weight not finite", "0,1,0.5\n1,2,inf\n", "edges.csv:2:3: weight: \"inf\" is not a finite number"},
      {"timestamp no integer", "s,t,time\n0,1,2.5\n", "edges.csv:2:3: timestamp: \"2.5\" is not an integer"},
      {"unknown column", "s,t,kind\n0,1,2\n",
       "edges.csv:1:3: header: \"kind\" is none of source, target, weight, timestamp"},
      {"a column twice", "s,t,time,timestamp\n0,1,2,3\n",
       "edges.csv:1:4: header: \"timestamp\" makes a second column of timestamp"},
      {"more columns than are known", "0,1,2,3\n", "edges.csv:1: columns: the line has 4; without a header"},
      {"one column", "0\n1\n", "edges.csv:1: columns: the line has one, expected at least 2"},
      {"another delimiter", "0;1\n", "edges.csv:1: columns: the line has one", {.delimiter = ','}},
      {"no edges", "# none\n", "edges.csv: edges: there is none"},
      {"nothing", "", "edges.csv: edges: there is none"},
      {"empty text", "a,b\nc, \n", "edges.csv:2:2: target: the cell is empty", {.node_ids = NodeIds::kText}},
      {"truncated gzip", Gzip("0,1\n2,1\n1,2\n").substr(0, 20), "edges.csv:3: truncated gzip"},
      {"truncated zstd", Zstd("0,1\n2,1\n1,2\n").substr(0, 12), "edges.csv:1: truncated zstd"},
      {"corrupt zstd", Zstd("0,1\n2,1\n1,2\n").replace(6, 4, "abcd"), "corrupt zstd"},
  };
  for (const auto& c : kCases) {
    ImportOptions options = Options(c.text);
    options.edge_list = c.edge_list;
    const auto summary = ImportGraphInto(temp_.path() / "store", options);
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << c.why << ": " << summary.status();
    EXPECT_THAT(std::string(summary.status().message()), HasSubstr(c.want)) << c.why;
    EXPECT_FALSE(std::filesystem::exists(temp_.path() / "store" / Graph::kFileName)) << c.why;
  }
}

TEST_F(EdgeListImport, NamesTheLineOfAFaultDeepInAFileOfManyBlocks) {
  std::string text;
  for (int line = 0; line < 1500000; ++line) text += line == 1234567 ? "1,oops\n" : "12345,678901\n";
  const auto summary = ImportGraphInto(temp_.path() / "store", Options(text));
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("edges.csv:1234568:2: target: \"oops\""));
}

TEST_F(EdgeListImport, WeightsAndTimestampsFollowTheirEdgesBothWays) {
  const auto graph = Make(Options("source,target,time,weight\n2,0,30,0.5\n1,0,-7,2\n0,1,5,1e-3\n"));
  ASSERT_NE(graph, nullptr);
  const GraphView& view = graph->view();
  EXPECT_THAT(Values(view.in.neighbors), ElementsAre(1, 2, 0));
  EXPECT_THAT(Values(view.in.weights), ElementsAre(2, 0.5f, 1e-3f));
  EXPECT_THAT(Values(view.in.timestamps), ElementsAre(-7, 30, 5));
  EXPECT_THAT(Values(view.out.neighbors), ElementsAre(1, 0, 0));
  EXPECT_THAT(Values(view.out.weights), ElementsAre(1e-3f, 2, 0.5f));
  EXPECT_THAT(Values(view.out.timestamps), ElementsAre(5, -7, 30));
  EXPECT_TRUE(graph->summary().weighted && graph->summary().timestamped);
}

TEST_F(EdgeListImport, AnIgnoredColumnMayHoldAnything) {
  ImportOptions options = Options("0,1,what ever,3\r\n1,2,,4\r\n");
  options.edge_list.columns = {EdgeColumn::kIgnore, EdgeColumn::kWeight};
  const auto graph = Make(options);
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(Values(graph->view().in.weights), ElementsAre(3, 4));
}

TEST_F(EdgeListImport, InversesAndCoalescing) {
  const std::string text = "0,1,1\n1,0,2\n0,1,4\n2,2,8\n2,2,16\n";
  const struct {
    const char* why;
    bool inverses, coalesce;
    std::vector<NodeId> neighbors;
    std::vector<float> weights;
    int64_t self_loops, duplicates;
  } kCases[] = {
      {"as they stand, equal ones in file order", false, false, {1, 0, 0, 2, 2}, {2, 1, 4, 8, 16}, 2, 0},
      {"each with its inverse, self-loops once",
       true,
       false,
       {1, 1, 1, 0, 0, 0, 2, 2},
       {1, 2, 4, 1, 2, 4, 8, 16},
       2,
       0},
      {"one of each, weights added", false, true, {1, 0, 2}, {2, 5, 24}, 1, 2},
      {"both", true, true, {1, 0, 2}, {7, 7, 24}, 1, 5},
  };
  for (const auto& c : kCases) {
    ImportOptions options = Options(text);
    options.inverse_edges = c.inverses ? InverseEdges::kAdd : InverseEdges::kKeep;
    options.coalesce = c.coalesce;
    const auto graph = Make(options);
    ASSERT_NE(graph, nullptr) << c.why;
    EXPECT_EQ(Values(graph->view().in.neighbors), c.neighbors) << c.why;
    EXPECT_EQ(Values(graph->view().in.weights), c.weights) << c.why;
    const GraphSummary& summary = graph->summary();
    EXPECT_EQ(summary.symmetric, c.inverses) << c.why;
    EXPECT_EQ(summary.self_loops, c.self_loops) << c.why;
    EXPECT_EQ(summary.duplicate_edges, c.duplicates) << c.why;
  }
}

TEST_F(EdgeListImport, CountsDegreesAndIsolatedNodes) {
  ImportOptions options = Options("0,1\n3,1\n");
  options.edge_list.num_nodes = 6;
  const auto graph = Make(options);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graph->summary().nodes, 6);
  EXPECT_EQ(graph->summary().max_degree, 2);
  EXPECT_EQ(graph->summary().isolated_nodes, 3) << "2, 4 and 5; not 0 and 3, where edges only begin";
  options.keep_out_edges = false;
  const auto one_way = Make(options);
  ASSERT_NE(one_way, nullptr);
  EXPECT_EQ(one_way->summary().isolated_nodes, 3);
  EXPECT_FALSE(one_way->view().out.present());
}

TEST_F(EdgeListImport, NumbersBecomeRowsInRisingOrder) {
  for (const uint64_t far : {uint64_t{70}, ~uint64_t{0}}) {  // numbers close together, then far apart
    ImportOptions options = Options("source,target\n" + std::to_string(far) + ",5\n5,9\n");
    options.edge_list.node_ids = NodeIds::kNumbers;
    const auto graph = Make(options);
    ASSERT_NE(graph, nullptr);
    EXPECT_THAT(Values(graph->names().numbers), ElementsAre(5, 9, far));
    EXPECT_THAT(NeighborsOf(graph->view().in, 0), ElementsAre(2));
    EXPECT_THAT(NeighborsOf(graph->view().in, 1), ElementsAre(0));
    EXPECT_THAT(NeighborsOf(graph->view().in, 2), IsEmpty());
    EXPECT_TRUE(graph->summary().named);
  }
  ImportOptions options = Options("1,0\n0,2\n");
  options.edge_list.node_ids = NodeIds::kNumbers;
  const auto graph = Make(options);
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(graph->summary().named) << "every row is its own number";
}

TEST_F(EdgeListImport, TextBecomesRowsByFirstAppearance) {
  ImportOptions options = Options("wolf\thare\nfox\thare\nhare\tgrass root\n");
  options.edge_list.node_ids = NodeIds::kText;
  const auto graph = Make(options);
  ASSERT_NE(graph, nullptr);
  const auto text = Values(graph->names().text);
  EXPECT_EQ(std::string(text.begin(), text.end()), "wolfharefoxgrass root");
  EXPECT_THAT(Values(graph->names().offsets), ElementsAre(0, 4, 8, 11, 21));
  EXPECT_THAT(NeighborsOf(graph->view().in, 1), ElementsAre(0, 2));
}

TEST_F(EdgeListImport, RefusesMoreNodesThanTheMemoryHolds) {
  ImportOptions options = Options("0,4294967294\n");
  const auto summary =
      ImportGraphInto(temp_.path() / "store", options, {.memory_bytes = uint64_t{1} << 24, .may_read = {}});
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("4294967295 nodes take more memory"));
}

TEST_F(EdgeListImport, ObeysMayReadAndStop) {
  const ImportOptions options = Options("0,1\n");
  const auto refused = ImportGraphInto(temp_.path() / "store", options, {.may_read = [](const std::filesystem::path&) {
                                         return absl::PermissionDeniedError("leads elsewhere");
                                       }});
  EXPECT_EQ(refused.status(), absl::PermissionDeniedError("edges.csv: leads elsewhere"));
  std::stop_source stop;
  stop.request_stop();
  const auto cancelled = ImportGraph(options, temp_.path() / "store", {}, stop.get_token());
  EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kCancelled) << cancelled.status();
}

TEST_F(EdgeListImport, TellsItsProgressInBytesOfTheFile) {
  const ImportOptions options = Options("0,1\n1,2\n");
  std::vector<ImportProgress> heard;
  std::filesystem::create_directories(temp_.path() / "store");
  const auto summary = ImportGraph(
      options, temp_.path() / "store", [&heard](const ImportProgress& p) { heard.push_back(p); }, std::stop_token());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(heard.back().bytes_read, 8);
  EXPECT_EQ(heard.back().bytes_total, 8);
  EXPECT_TRUE(std::ranges::any_of(heard, [](const auto& p) { return p.current_file == "sorting"; }));
  EXPECT_TRUE(std::ranges::any_of(heard, [](const auto& p) { return p.current_file == "edges.csv"; }));
}

}  // namespace
}  // namespace permafrost::data
