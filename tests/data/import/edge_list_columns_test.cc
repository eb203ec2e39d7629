// How edge lists with headers, quotes, comments and extra columns are read, and what the import reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/graph_folder.h"
#include "data/import/import.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> TextNamesOf(const Graph& graph) {
  const auto offsets = Values(graph.names().offsets);
  const auto text = Values(graph.names().text);
  std::vector<std::string> names;
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    names.emplace_back(text.data() + offsets[n], offsets[n + 1] - offsets[n]);
  }
  return names;
}

// Returns each edge as "source>target", ordered by target.
std::vector<std::string> NamedEdgesOf(const Graph& graph) {
  const auto names = TextNamesOf(graph);
  const auto name = [&](NodeId node) { return names.empty() ? std::to_string(node) : names[node]; };
  std::vector<std::string> edges;
  for (NodeId target = 0; target < graph.view().nodes; ++target) {
    for (const NodeId source : NeighborsOf(graph.view().in, target)) edges.push_back(name(source) + ">" + name(target));
  }
  return edges;
}

class EdgeListColumns : public ::testing::Test {
 protected:
  ImportOptions Options(std::string_view text, EdgeListOptions edge_list = {}) {
    WriteText(temp_.path() / "edges.csv", text);
    ImportOptions options{.source = temp_.path() / "edges.csv", .edge_list = std::move(edge_list)};
    options.inverse_edges = InverseEdges::kKeep;
    return options;
  }
  std::shared_ptr<const Graph> Make(const ImportOptions& options) { return MakeGraph(temp_.path() / "store", options); }
  std::string Refusal(const ImportOptions& options) {
    const auto summary = ImportGraphInto(temp_.path() / "store", options);
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << summary.status();
    return std::string(summary.status().message());
  }
  TempDir temp_;
};

constexpr EdgeListOptions kTextIds = {.node_ids = NodeIds::kText};

TEST_F(EdgeListColumns, ReadTheTrialsRight) {
  const std::filesystem::path trials = std::filesystem::path(PERMAFROST_SOURCE_DIR) / "tests/trials/edge-lists";
  const struct {
    const char* file;
    NodeIds ids;
    std::vector<std::string> edges;
    const char* note;
  } kCases[] = {
      {"hdr2.csv",
       NodeIds::kText,
       {"alice>bob", "bob>carol"},
       "columns read as source, target; line 1 is a header: \"source\", \"target\""},
      {"swap.csv", NodeIds::kRows, {"1>0", "2>1"}, "columns read as target, source; line 1 is a header"},
      {"hash.csv", NodeIds::kText, {"4>5"}, "2 lines that begin with \"#\" were passed over as comments"},
      {"q5.csv", NodeIds::kText, {"x,1>2", "y,1>3"}, "columns read as source, target; there is no header"},
      {"q.csv", NodeIds::kText, {"a>b", "b>c", "c>d"}, "columns read as source, target; there is no header"},
  };
  for (const auto& c : kCases) {
    ImportOptions options{.source = trials / c.file, .format = ImportFormat::kEdgeList};
    options.edge_list.node_ids = c.ids;
    options.inverse_edges = InverseEdges::kKeep;
    const auto graph = Make(options);
    ASSERT_NE(graph, nullptr) << c.file;
    EXPECT_EQ(NamedEdgesOf(*graph), c.edges) << c.file;
    EXPECT_FALSE(graph->summary().weighted) << c.file;
    EXPECT_THAT(graph->summary().notes, Contains(HasSubstr(c.note))) << c.file;
  }
  ImportOptions options{.source = trials / "q5.csv", .format = ImportFormat::kEdgeList};
  EXPECT_THAT(Refusal(options), HasSubstr("q5.csv:1:1: source: \"x,1\" is not a node id"));
  options = {.source = trials / "hash.csv", .format = ImportFormat::kEdgeList};
  options.edge_list = {.node_ids = NodeIds::kText, .comment = '\0'};
  options.inverse_edges = InverseEdges::kKeep;
  const auto graph = Make(options);
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(NamedEdgesOf(*graph), ElementsAre("#1>#2", "#2>#3", "4>5"));
}

TEST_F(EdgeListColumns, HeadersOfAllKinds) {
  const struct {
    const char* why;
    std::string text;
    EdgeListOptions options;
    std::vector<std::string> edges;
  } kCases[] = {
      {"the other order", "dst,src\n0,1\n", {}, {"1>0"}},
      {"in other words", "To Node;From Node\n0;1\n", {}, {"1>0"}},
      {"quoted", "\"target\",\"source\"\n0,1\n", {}, {"1>0"}},
      {"ends after a weight", "weight,u,v\n0.5,1,0\n", {}, {"1>0"}},
      {"names that say nothing", "node1,node2\n1,0\n", {}, {"1>0"}},
      {"a number above numbers is an edge", "1,0\n", {}, {"1>0"}},
      {"text, known names", "from\tto\nto\tfrom\n", kTextIds, {"to>from"}},
      {"text above numbers", "person,friend\n1,0\n0,1\n", kTextIds, {"0>1", "1>0"}},
      {"text above text is an edge", "person,friend\na,b\n", kTextIds, {"person>friend", "a>b"}},
      {"told that it is none",
       "source,target\na,b\n",
       {.node_ids = NodeIds::kText, .header = Header::kNo},
       {"source>target", "a>b"}},
      {"old columns below a header in the other order",
       "target,source,w\n0,1,2\n",
       {.columns = {EdgeColumn::kWeight}},
       {"1>0"}},
      {"all columns told",
       "a,b,c\n7,0,1\n",
       {.columns = {EdgeColumn::kIgnore, EdgeColumn::kTarget, EdgeColumn::kSource}},
       {"1>0"}},
      {"all columns told, without a header",
       "7,0,1\n8,1,1\n",
       {.columns = {EdgeColumn::kTimestamp, EdgeColumn::kTarget, EdgeColumn::kSource}},
       {"1>0", "1>1"}},
  };
  for (const auto& c : kCases) {
    const auto graph = Make(Options(c.text, c.options));
    ASSERT_NE(graph, nullptr) << c.why;
    auto edges = NamedEdgesOf(*graph);
    std::ranges::sort(edges);
    auto want = c.edges;
    std::ranges::sort(want);
    EXPECT_EQ(edges, want) << c.why;
  }
}

TEST_F(EdgeListColumns, HeadersThatContradictAreRefused) {
  const struct {
    const char* why;
    std::string text, want;
    EdgeListOptions options = {};
  } kCases[] = {
      {"a target alone, in front", "target,x\n0,1\n", "edges.csv:1:2: header: \"x\" makes a second column of target"},
      {"two sources", "source,from,target\n0,1,2\n", "edges.csv:1:2: header: \"from\" makes a second column of source"},
      {"an index without a name", ",source,target\n0,1,2\n",
       "edges.csv:1:1: header: \"\" is none of source, target, weight, timestamp"},
      {"ends elsewhere than the old columns have them",
       "weight,source,target\n1,0,1\n",
       "edges.csv:1:1: header: \"weight\" stands in a header whose first two columns are not source and target",
       {.columns = {EdgeColumn::kWeight}}},
  };
  for (const auto& c : kCases) EXPECT_THAT(Refusal(Options(c.text, c.options)), HasSubstr(c.want)) << c.why;
}

TEST_F(EdgeListColumns, QuotedCells) {
  const auto graph = Make(Options("\"a \"\"b\"\"\", \"c,d\" ,0.5\r\n\"c,d\",e\"f,\"2\"\r\n", kTextIds));
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(NamedEdgesOf(*graph), ElementsAre("a \"b\">c,d", "c,d>e\"f"));
  EXPECT_THAT(Values(graph->view().in.weights), ElementsAre(0.5f, 2));
  const auto spaces = Make(Options("\"a b\" c\nc\t\"a b\"\n", kTextIds));
  ASSERT_NE(spaces, nullptr);
  EXPECT_THAT(NamedEdgesOf(*spaces), ElementsAre("c>a b", "a b>c"));
  const auto numbers = Make(Options("\"1\",\"0\",\"x,y\"\n0,1,\"z,\"\n", {.columns = {EdgeColumn::kIgnore}}));
  ASSERT_NE(numbers, nullptr);
  EXPECT_THAT(NamedEdgesOf(*numbers), ElementsAre("1>0", "0>1"));
  EdgeListOptions literal = kTextIds;
  literal.quote = '\0';
  const auto as_text = Make(Options("\"a,b\n", literal));
  ASSERT_NE(as_text, nullptr);
  EXPECT_THAT(NamedEdgesOf(*as_text), ElementsAre("\"a>b"));
}

TEST_F(EdgeListColumns, QuotesThatDoNotEndAreRefusedByLine) {
  EXPECT_THAT(Refusal(Options("a,b\n\"a\nb\",c\n", kTextIds)),
              HasSubstr("edges.csv:2:1: quotes: the cell \"\\\"a\" does not end in its line, and line breaks"));
  EXPECT_THAT(Refusal(Options("a,b\na,\"b\"c\n", kTextIds)),
              HasSubstr("edges.csv:2:2: quotes: the cell \"\\\"b\\\"c\" goes on after its closing quote"));
}

TEST_F(EdgeListColumns, WholeNumbersBeyondFloat32AreNoWeightsByThemselves) {
  EXPECT_THAT(Refusal(Options("0,1,1480000000\n1,2,1480000020\n")),
              HasSubstr("edges.csv:1:3: weight: 1480000000 is a whole number beyond 16777216"));
  EXPECT_THAT(Refusal(Options("0,1,16777216\n1,2,16777217\n")), HasSubstr("edges.csv:2:3: weight: 16777217 is"));
  EXPECT_THAT(Refusal(Options("0,1,1\n1,2,99999999999999999999999\n")), HasSubstr("--columns source,target,timestamp"));
  const auto fractions = Make(Options("0,1,16777216\n1,2,1e9\n0,2,33554433.0\n"));
  ASSERT_NE(fractions, nullptr) << "they are written as floats";
  const auto named = Make(Options("source,target,weight\n0,1,1480000000\n"));
  ASSERT_NE(named, nullptr) << "the header says that they are weights";
  const auto times = Make(Options("0,1,1480000000\n0,1,1480000001\n",
                                  {.columns = {EdgeColumn::kSource, EdgeColumn::kTarget, EdgeColumn::kTimestamp}}));
  ASSERT_NE(times, nullptr);
  EXPECT_THAT(Values(times->view().in.timestamps), ElementsAre(1480000000, 1480000001));
}

TEST_F(EdgeListColumns, CommentsAreCounted) {
  std::string text = "# one\nsource,target\n";
  for (int line = 0; line < 300000; ++line) text += line % 3 == 0 ? "# c\n" : "12345,678901\n";
  for (const NodeIds ids : {NodeIds::kRows, NodeIds::kNumbers, NodeIds::kText}) {
    const auto graph = Make(Options(text, {.node_ids = ids}));
    ASSERT_NE(graph, nullptr);
    EXPECT_THAT(graph->summary().notes,
                Contains("edges.csv: 100001 lines that begin with \"#\" were passed over as comments (--comment none "
                         "reads them)"));
  }
  EXPECT_THAT(Refusal(Options("#a,b\n")), HasSubstr("1 line that begins with \"#\" was passed over as comments"));
}

TEST_F(EdgeListColumns, NamesThatAreNoUtf8AreRefusedByLineAndByte) {
  EXPECT_THAT(Refusal(Options("a,b\na,caf\xe9\n", kTextIds)),
              HasSubstr("edges.csv:2:2: target: \"caf\\xe9\" is not UTF-8: byte 4 of it is 0xe9"));
  const auto graph = Make(Options("a,caf\xc3\xa9\n", kTextIds));
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(NamedEdgesOf(*graph), ElementsAre("a>caf\xc3\xa9"));
}

TEST_F(EdgeListColumns, ErrorsAreShortWhateverTheCell) {
  const std::string digits(1 << 20, '7');
  for (const auto& [text, options] : {std::pair{"0,1\n" + digits + ",2\n", EdgeListOptions{}},
                                      {"0,1\n" + digits + "x,2\n", EdgeListOptions{}},
                                      {"0,1,2\n0,1," + digits + "\n", {.columns = {EdgeColumn::kTimestamp}}},
                                      {"0,1,2\n0,1," + digits + "\n", EdgeListOptions{}},
                                      {"a,b\n\"" + digits + ",2\n", kTextIds},
                                      {"source,target," + digits + "x\n0,1,2\n", EdgeListOptions{}},
                                      {"0,1\n-" + digits + ",2\n", EdgeListOptions{}}}) {
    EXPECT_LT(Refusal(Options(text, options)).size(), 500u);
  }
}

}  // namespace
}  // namespace permafrost::data
