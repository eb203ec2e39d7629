#include "data/import/node_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/graph_folder.h"
#include "data/store/graph.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two sides of a triangle, as NPY and in OGB's layout: the edges 0>1 and 1>2.
const Files kNpyGraph = {{"edge_index.npy", Npy<int64_t>("<i8", "(2, 2)", {0, 1, 1, 2})}};
const Files kOgbGraph = {{"raw/num-node-list.csv", "3\n"}, {"raw/edge.csv", "0,1\n1,2\n"}};

class NameFiles : public ::testing::Test {
 protected:
  std::shared_ptr<const Graph> Make(Files files, const Files& more, NodeOrder order = NodeOrder::kNone) {
    return MakeGraph(temp_.path() / "store", Options(std::move(files), more, order));
  }
  std::string Refusal(Files files, const Files& more) {
    const auto summary = ImportGraphInto(temp_.path() / "store", Options(std::move(files), more, NodeOrder::kNone));
    EXPECT_FALSE(summary.ok());
    return std::string(summary.status().message());
  }
  static std::vector<std::string> NamesOf(const Graph& graph) {
    std::vector<std::string> names;
    for (NodeId row = 0; row < graph.view().nodes; ++row) names.push_back(NameOf(graph.names(), row).value_or("?"));
    return names;
  }
  TempDir temp_;

 private:
  ImportOptions Options(Files files, const Files& more, NodeOrder order) {
    std::filesystem::remove_all(temp_.path() / "source");
    for (const auto& file : more) files.insert(file);
    WriteFiles(temp_.path() / "source", files);
    ImportOptions options{.source = temp_.path() / "source"};
    options.order = order;
    return options;
  }
};

TEST_F(NameFiles, NameTheNodesOfBothKindsOfFolder) {
  const struct {
    const char* why;
    Files graph, names;
    std::vector<std::string> want;
  } kCases[] = {
      {"numbers", kNpyGraph, {{"node_ids.npy", Npy<int64_t>("<i8", "(3,)", {70, 5, 9})}}, {"70", "5", "9"}},
      {"negative ones are texts",
       kNpyGraph,
       {{"node_ids.npy", Npy<int64_t>("<i8", "(3,)", {7, -5, 9})}},
       {"7", "-5", "9"}},
      {"texts",
       kNpyGraph,
       {{"node_names.csv", "fox\n\"hare, the\"\n\"a \"\"wolf\"\"\"\n"}},
       {"fox", "hare, the", "a \"wolf\""}},
      {"packed", kNpyGraph, {{"node_names.csv.gz", Gzip("fox\nhare\nwolf\n")}}, {"fox", "hare", "wolf"}},
      {"digits that are no number",
       kNpyGraph,
       {{"node_names.csv", "7\n007\n18446744073709551616\n"}},
       {"7", "007", "18446744073709551616"}},
      {"OGB's layout", kOgbGraph, {{"raw/node-names.csv", "fox\nhare\nwolf\n"}}, {"fox", "hare", "wolf"}},
      {"OGB's layout, numbers",
       kOgbGraph,
       {{"raw/node-ids.npy", Npy<int32_t>("<i4", "(3,)", {70, 5, 9})}},
       {"70", "5", "9"}},
      {"OGB's mapping",
       kOgbGraph,
       {{"mapping/nodeidx2paperid.csv.gz", Gzip("node idx,paper id\n0,9657784\n1,39886\n2,1\n")},
        {"mapping/labelidx2name.csv.gz", "not read"}},
       {"9657784", "39886", "1"}},
  };
  for (const auto& c : kCases) {
    for (const NodeOrder order : {NodeOrder::kNone, NodeOrder::kDegree}) {
      const auto graph = Make(c.graph, c.names, order);
      ASSERT_NE(graph, nullptr) << c.why;
      EXPECT_TRUE(graph->summary().named) << c.why;
      auto names = NamesOf(*graph);
      auto want = c.want;
      if (order == NodeOrder::kDegree) {
        // Inverse edges are added, so the middle node has the highest degree and comes first.
        EXPECT_EQ(names.front(), want[1]) << c.why;
        std::ranges::sort(names);
        std::ranges::sort(want);
      }
      EXPECT_EQ(names, want) << c.why;
    }
  }
}

TEST_F(NameFiles, ThatCallEachNodeByItsRowAreNone) {
  const auto graph = Make(kNpyGraph, {{"node_ids.npy", Npy<int64_t>("<i8", "(3,)", {0, 1, 2})}});
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(graph->summary().named);
  EXPECT_THAT(NamesOf(*graph), ElementsAre("0", "1", "2"));
}

TEST_F(NameFiles, AreRefusedByLine) {
  const struct {
    const char* why;
    Files names;
    const char* want;
  } kCases[] = {
      {"too few", {{"node_names.csv", "a\nb\n"}}, "node_names.csv: rows: the file has 2, expected 3"},
      {"too many", {{"node_names.csv", "a\nb\nc\nd\n"}}, "node_names.csv: rows: the file has 4, expected 3"},
      {"two of a name", {{"node_names.csv", "a\nb\na\n"}}, "node_names.csv:3: name: \"a\" is the name of node 0 too"},
      {"two of a number",
       {{"node_ids.npy", Npy<int64_t>("<i8", "(3,)", {7, 5, 7})}},
       "node_ids.npy: name: 7 is the name of node 0 and of node 2"},
      {"two cells",
       {{"node_names.csv", "a\nb,c\nd\n"}},
       "node_names.csv:2: columns: the row has 2, expected 1, a name"},
      {"Latin-1",
       {{"node_names.csv", "a\ncaf\xe9\nd\n"}},
       "node_names.csv:2: name: \"caf\\xe9\" is not UTF-8: byte 4 of it is 0xe9"},
      {"another shape",
       {{"node_ids.npy", Npy<int64_t>("<i8", "(2,)", {7, 5})}},
       "node_ids.npy: shape: is int64 [2], expected [3], one id a node"},
      {"both",
       {{"node_ids.npy", Npy<int64_t>("<i8", "(3,)", {7, 5, 6})}, {"node_names.csv", "a\nb\nc\n"}},
       "node_names.csv: stands beside node_ids.npy; one of them is accepted"},
  };
  // The labels determine the number of nodes.
  Files graph = kNpyGraph;
  graph["node_label.npy"] = Npy<int64_t>("<i8", "(3,)", {0, 1, 0});
  for (const auto& c : kCases) EXPECT_THAT(Refusal(graph, c.names), HasSubstr(c.want)) << c.why;
}

TEST_F(NameFiles, AMappingThatDoesNotFitIsToldAndLeft) {
  for (const char* text :
       {"node idx,asin\n0,a\n1,b\n", "node idx,asin\n0,a\n1,b\n2,a\n", "node idx,asin\n0,a\n2,b\n1,c\n"}) {
    const auto graph = Make(kOgbGraph, {{"mapping/nodeidx2asin.csv", text}});
    ASSERT_NE(graph, nullptr);
    EXPECT_FALSE(graph->summary().named);
    EXPECT_THAT(graph->summary().notes, Contains(HasSubstr("nodes are called by their rows"))) << text;
  }
}

}  // namespace
}  // namespace permafrost::data
