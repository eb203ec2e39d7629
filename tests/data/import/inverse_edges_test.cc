// The directions of stored edges, by the import's options and by the directions that the source lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "data/graph_folder.h"
#include "data/import/graph_edges.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kAdded[] = "inverse edges: added, since the source lists some edges in one direction alone";
constexpr char kNotAdded[] = "inverse edges: not added, since the source lists both directions of every edge";

fs::path Trial(const std::string& name) { return fs::path(PERMAFROST_SOURCE_DIR) / "tests" / "trials" / name; }

class InverseEdgesImport : public ::testing::Test {
 protected:
  // Imports a list of edges and returns its summary. Fails the test if the list is refused.
  GraphSummary OfList(const std::string& text, ImportOptions options = {}) {
    WriteText(temp_.path() / "edges.csv", text);
    options.source = temp_.path() / "edges.csv";
    return OfGraph(options);
  }
  GraphSummary OfGraph(const ImportOptions& options) {
    const auto graph = MakeGraph(temp_.path() / "store", options);
    return graph == nullptr ? GraphSummary{} : graph->summary();
  }
  TempDir temp_;
};

TEST_F(InverseEdgesImport, BothDirectionsListedAreNotDoubled) {
  for (const char* source : {"both-directions/both.csv", "both-directions/npy", "both-directions/ogb"}) {
    const auto graph = MakeGraph(temp_.path() / "store", {.source = Trial(source)});
    ASSERT_NE(graph, nullptr) << source;
    const GraphSummary& summary = graph->summary();
    EXPECT_EQ(summary.edges, 6) << source;
    EXPECT_TRUE(summary.symmetric) << source;
    EXPECT_FALSE(summary.inverse_edges_added) << source;
    EXPECT_EQ(summary.directions, EdgeDirections::kListed) << source;
    EXPECT_EQ(summary.equal_edges, 0) << source;
    EXPECT_THAT(summary.notes, Contains(kNotAdded)) << source;
    EXPECT_THAT(NeighborsOf(graph->view().in, 1), ElementsAre(0, 2)) << source;
    EXPECT_THAT(NeighborsOf(graph->view().out, 1), ElementsAre(0, 2)) << source;
  }
}

TEST_F(InverseEdgesImport, OfASetForAllGraphsOrForNone) {
  const auto set = ImportInto(temp_.path() / "both", {.source = Trial("both-directions/set")});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->all.edges, 12);
  EXPECT_EQ(set->directions, EdgeDirections::kListed);
  EXPECT_FALSE(set->inverse_edges_added);
  EXPECT_THAT(set->notes, Contains(kNotAdded));
  // Only the last graph has an edge in one direction.
  Files files{{"raw/num-node-list.csv", "2\n2\n"},
              {"raw/num-edge-list.csv", "2\n1\n"},
              {"raw/edge.csv", "0,1\n1,0\n0,1\n"},
              {"raw/graph-label.csv", "0\n1\n"}};
  const auto mixed = MakeStore(temp_.path() / "mixed", files);
  ASSERT_NE(mixed, nullptr);
  EXPECT_EQ(mixed->summary().all.edges, 6);
  EXPECT_EQ(mixed->summary().directions, EdgeDirections::kAdded);
  EXPECT_EQ(mixed->summary().duplicate_edges, 2) << "of the first graph each edge twice";
  EXPECT_THAT(mixed->summary().notes, Contains(kAdded));
  const auto kept = MakeStore(temp_.path() / "kept", files, {.inverse_edges = InverseEdges::kKeep});
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->summary().all.edges, 3);
  EXPECT_EQ(kept->summary().directions, EdgeDirections::kKept);
  EXPECT_EQ(kept->summary().duplicate_edges, 0);
  // A self-loop is its own inverse. It is stored once if no inverses are added.
  files["raw/num-edge-list.csv"] = "2\n1\n";
  files["raw/edge.csv"] = "0,1\n1,0\n1,1\n";
  const auto loop = MakeStore(temp_.path() / "loop", files);
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(loop->summary().all.edges, 3);
  EXPECT_EQ(loop->summary().directions, EdgeDirections::kListed);
}

TEST_F(InverseEdgesImport, WhatAListIsFoundToBe) {
  const struct {
    const char* why;
    std::string text;
    InverseEdges asked;
    int64_t edges, equal;
    bool symmetric;
    EdgeDirections directions;
  } kCases[] = {
      {"one direction", "0,1\n1,2\n", InverseEdges::kAuto, 4, 0, true, EdgeDirections::kAdded},
      {"both", "0,1\n1,0\n", InverseEdges::kAuto, 2, 0, true, EdgeDirections::kListed},
      {"both, added all the same", "0,1\n1,0\n", InverseEdges::kAdd, 4, 2, true, EdgeDirections::kAdded},
      {"both, kept: still directed", "0,1\n1,0\n", InverseEdges::kKeep, 2, 0, false, EdgeDirections::kKeptBoth},
      {"one direction, kept", "0,1\n1,2\n", InverseEdges::kKeep, 2, 0, false, EdgeDirections::kKept},
      {"one is missing", "0,1\n1,0\n1,2\n", InverseEdges::kAuto, 6, 2, true, EdgeDirections::kAdded},
      {"equal edges count", "0,1\n0,1\n1,0\n", InverseEdges::kAuto, 6, 4, true, EdgeDirections::kAdded},
      {"equally many", "0,1\n0,1\n1,0\n1,0\n", InverseEdges::kAuto, 4, 2, true, EdgeDirections::kListed},
      {"loops have no direction", "0,1\n1,0\n1,1\n", InverseEdges::kAuto, 3, 0, true, EdgeDirections::kListed},
      {"as many as others have", "0,1\n2,1\n", InverseEdges::kAuto, 4, 0, true, EdgeDirections::kAdded},
      {"equal weights", "0,1,2\n1,0,2\n", InverseEdges::kAuto, 2, 0, true, EdgeDirections::kListed},
      {"both zeros", "0,1,0\n1,0,-0\n", InverseEdges::kAuto, 2, 0, true, EdgeDirections::kListed},
      {"unequal weights", "0,1,2\n1,0,3\n", InverseEdges::kAuto, 2, 0, false, EdgeDirections::kListed},
  };
  for (const auto& c : kCases) {
    const GraphSummary summary = OfList(c.text, {.inverse_edges = c.asked});
    EXPECT_EQ(summary.edges, c.edges) << c.why;
    EXPECT_EQ(summary.equal_edges, c.equal) << c.why;
    EXPECT_EQ(summary.symmetric, c.symmetric) << c.why;
    EXPECT_EQ(summary.directions, c.directions) << c.why;
    EXPECT_EQ(summary.inverse_edges_added, c.directions == EdgeDirections::kAdded) << c.why;
    const bool automatic = c.asked == InverseEdges::kAuto;
    EXPECT_EQ(std::ranges::count(summary.notes, std::string(kAdded)), automatic && summary.inverse_edges_added)
        << c.why;
    EXPECT_EQ(std::ranges::count(summary.notes, std::string(kNotAdded)), automatic && !summary.inverse_edges_added)
        << c.why;
  }
}

TEST_F(InverseEdgesImport, WeightsAndTimesOfBothDirectionsMayDiffer) {
  const GraphSummary weighted = OfList("0,1,2\n1,0,3\n");
  EXPECT_THAT(weighted.notes, Contains(HasSubstr("directed, since the two directions of some edges differ in their "
                                                 "weights")));
  const std::string times = "source,target,time\n0,1,5\n1,0,5\n1,2,6\n2,1,";
  const GraphSummary timed = OfList(times + "6\n");
  EXPECT_TRUE(timed.symmetric && timed.timestamped);
  const GraphSummary apart = OfList(times + "7\n");
  EXPECT_FALSE(apart.symmetric);
  EXPECT_EQ(apart.edges, 4);
  EXPECT_THAT(apart.notes, Contains(HasSubstr("differ in their timestamps")));
}

TEST_F(InverseEdgesImport, IsFoundBeyondTheMemoryToo) {
  SplitMix64 random(5, 0);
  std::vector<std::pair<uint64_t, uint64_t>> pairs;
  for (int e = 0; e < 600'000; ++e) pairs.emplace_back(random.Below(5'000), random.Below(5'000));
  std::string both, one;
  for (const auto& [a, b] : pairs) both += std::to_string(a) + "," + std::to_string(b) + "\n";
  one = both;
  for (const auto& [a, b] : pairs) both += a == b ? "" : std::to_string(b) + "," + std::to_string(a) + "\n";
  constexpr uint64_t kLittle = uint64_t{16} << 20;
  const GraphSummary listed = OfList(both, {.memory_bytes = kLittle});
  EXPECT_EQ(listed.directions, EdgeDirections::kListed);
  const auto listed_checksum = Graph::Open(temp_.path() / "store").value()->content_checksum();
  const GraphSummary added = OfList(one, {.memory_bytes = kLittle});
  EXPECT_EQ(added.directions, EdgeDirections::kAdded);
  EXPECT_EQ(added.edges, listed.edges);
  EXPECT_EQ(Graph::Open(temp_.path() / "store").value()->content_checksum(), listed_checksum)
      << "the same graph, whichever way it is listed";
  const GraphSummary in_memory = OfList(one, {.inverse_edges = InverseEdges::kAdd});
  EXPECT_EQ(in_memory.equal_edges, added.equal_edges);
  EXPECT_EQ(Graph::Open(temp_.path() / "store").value()->content_checksum(), listed_checksum);
  // One direction of one among a million edges is missing, and nothing else shows it.
  both.resize(both.rfind('\n', both.size() - 2) + 1);
  EXPECT_EQ(OfList(both, {.memory_bytes = kLittle}).directions, EdgeDirections::kAdded);
}

TEST(EdgeSymmetry, TellsDirectionsApartThatAddUpToTheSame) {
  const auto matches = [](std::vector<std::pair<NodeId, NodeId>> pairs) {
    EdgeSymmetry symmetry(/*values=*/false);
    std::vector<PlainEdge> edges;
    for (const auto& [a, b] : pairs) edges.push_back({MakeEdgeKey(a, b)});
    symmetry.Add(std::span<const PlainEdge>(edges));
    return symmetry.ends_match();
  };
  EXPECT_TRUE(matches({}));
  EXPECT_TRUE(matches({{0, 1}, {2, 3}, {1, 0}, {3, 2}}));
  EXPECT_FALSE(matches({{0, 1}, {3, 2}}));
  EXPECT_FALSE(matches({{0, 3}, {1, 2}, {3, 1}, {2, 0}})) << "each node has as many of each";
  EXPECT_FALSE(matches({{0, 1}, {0, 1}, {2, 1}, {2, 1}}));
}

TEST_F(InverseEdgesImport, ATuSetSaysWhatItLists) {
  const fs::path twice =
      fs::path(PERMAFROST_SOURCE_DIR) / ".." / "shared" / "data" / "tu" / "IMDB-BINARY-duplicated.zip";
  if (!fs::exists(twice)) GTEST_SKIP() << twice << " is not there";
  fs::create_directories(temp_.path() / "store");
  const auto summary = Import({.source = twice}, temp_.path() / "store", /*observer=*/{}, std::stop_token());
  ASSERT_TRUE(summary.ok()) << summary.status();
  const auto& set = std::get<GraphSetSummary>(*summary);
  EXPECT_EQ(set.directions, EdgeDirections::kKeptBoth);
  EXPECT_GT(set.duplicate_edges, 0);
  EXPECT_THAT(set.notes, Not(Contains(HasSubstr("inverse edges"))));
}

}  // namespace
}  // namespace permafrost::data
