// TUDatasets whose edges are in another order than their graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "base/string_view.h"
#include "data/import/import.h"
#include "data/import/tu_sets.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines = absl::StrSplit(AbslView(text), '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// Returns `files` with the rows of every edge file in the order `rows`.
Files WithRows(Files files, const std::vector<size_t>& rows) {
  for (const char* name : {"S_A.txt", "S_edge_labels.txt", "S_edge_attributes.txt"}) {
    const auto found = files.find(name);
    if (found == files.end()) continue;
    const std::vector<std::string> lines = Lines(found->second);
    found->second.clear();
    for (const size_t row : rows) absl::StrAppend(&found->second, lines.at(row), "\n");
  }
  return files;
}

// Returns `graphs` graphs of five nodes and `edges` edges each, with labels and attributes. Some edges occur several
// times. Nodes are numbered from `first`.
Files ManyEdges(int graphs, int edges, int64_t first) {
  Files files;
  std::string &a = files["S_A.txt"], &labels = files["S_edge_labels.txt"], &values = files["S_edge_attributes.txt"];
  SplitMix64 random(7, 0);
  for (int graph = 0; graph < graphs; ++graph) {
    for (int node = 0; node < 5; ++node) absl::StrAppend(&files["S_graph_indicator.txt"], graph + 1, "\n");
    absl::StrAppend(&files["S_graph_labels.txt"], graph % 3, "\n");
    for (int edge = 0; edge < edges; ++edge) {
      const int64_t base = graph * int64_t{5} + first;
      absl::StrAppend(&a, base + static_cast<int64_t>(random.Below(5)), ",",
                      base + static_cast<int64_t>(random.Below(5)), "\n");
      absl::StrAppend(&labels, random.Below(4), "\n");
      absl::StrAppend(&values, graph + 0.001 * edge, "\n");
    }
  }
  return files;
}

// Returns an order of the rows of `graphs` graphs with `edges` edges each. It takes one row of each graph in turn,
// from the last graph to the first. The rows of one graph keep their order.
std::vector<size_t> OneOfEach(size_t graphs, size_t edges) {
  std::vector<size_t> rows;
  for (size_t edge = 0; edge < edges; ++edge) {
    for (size_t graph = graphs; graph-- > 0;) rows.push_back(graph * edges + edge);
  }
  return rows;
}

std::string StoreBytes(const fs::path& directory, const Files& files, const ImportOptions& options) {
  WriteFiles(directory / "source", files);
  const auto summary = ImportTu(directory / "source", directory / "store", options);
  EXPECT_TRUE(summary.ok()) << summary.status();
  // The sort leaves no files behind.
  EXPECT_EQ(std::distance(fs::directory_iterator(directory / "store"), fs::directory_iterator()), 1);
  return FileBytes(directory / "store" / GraphSet::kFileName);
}

TEST(TuOrder, EdgesOfAnyOrderGiveTheStoreOfThoseInOrder) {
  const struct {
    const char* why;
    int graphs, edges;
    int64_t first;
    ImportOptions options;
    bool features = true;
  } kCases[] = {
      {"several edges kept", 40, 30, 1, {.source = {}, .split = {}}},
      {"several edges merged: the first of the file", 40, 30, 1, {.source = {}, .coalesce = true, .split = {}}},
      {"nodes numbered from 0, which the first rows do not tell", 40, 30, 0, {.source = {}, .split = {}}},
      {"one-hot labels", 40, 30, 1, {.source = {}, .split = {}, .tu = {.one_hot = true}}},
      {"edges without features", 40, 30, 1, {.source = {}, .split = {}}, false},
      // A sort gets at least 16 MiB, which hold some 196,000 edges. The 260,000 edges here go to disk.
      {"more than the memory of a sort", 2000, 130, 1, {.source = {}, .split = {}, .memory_bytes = 1}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    TempDir temp;
    Files files = ManyEdges(c.graphs, c.edges, c.first);
    if (!c.features) files.erase("S_edge_labels.txt"), files.erase("S_edge_attributes.txt");
    const auto rows = OneOfEach(static_cast<size_t>(c.graphs), static_cast<size_t>(c.edges));
    const std::string in_order = StoreBytes(temp.path() / "a", files, c.options);
    ASSERT_FALSE(in_order.empty());
    EXPECT_TRUE(StoreBytes(temp.path() / "b", WithRows(files, rows), c.options) == in_order);
  }
}

TEST(TuOrder, EdgesKeepTheirLabels) {
  TempDir temp;
  // The last graph comes first. The edge 1->2 occurs twice, and both rows keep the file's order.
  const Files files = With(SmallTu(), {{"S_A.txt", "6, 6\n1, 2\n5, 6\n2, 1\n1, 2\n6, 5\n2, 3\n3, 2\n"},
                                       {"S_edge_labels.txt", "7\n1\n5\n2\n3\n6\n4\n5\n"}});
  const auto set = StoreOf(temp.path(), files);
  ASSERT_NE(set, nullptr);
  EXPECT_THAT(ToVector(*set->edge_offsets()), ElementsAre(0, 5, 5, 8));
  EXPECT_THAT(ToVector(*set->edge_target()), ElementsAre(0, 1, 1, 1, 2, 0, 1, 1));
  EXPECT_THAT(ToVector(*set->edge_source()), ElementsAre(1, 0, 0, 2, 1, 1, 1, 0));
  // Labels count from the smallest, 1.
  EXPECT_THAT(ToVector(set->edge_features()->ints), ElementsAre(1, 0, 2, 4, 3, 5, 6, 4));
  EXPECT_EQ(set->summary().duplicate_edges, 1);
  // Degrees are counted correctly, too.
  EXPECT_THAT(ToVector(set->node_features()->ints), ElementsAre(2, 2, 1, 0, 1, 2));
}

TEST(TuOrder, ProgressEndsWhereItWasSaidTo) {
  TempDir temp;
  const Files files = ManyEdges(20, 10, 0);
  WriteFiles(temp.path() / "source", WithRows(files, OneOfEach(20, 10)));
  fs::create_directories(temp.path() / "store");
  ImportProgress last;
  const ImportObserver observer = [&last](const ImportProgress& progress) { last = progress; };
  const auto summary = Import({.source = temp.path() / "source", .split = {}}, temp.path() / "store", observer,
                              std::stop_token(), ImportLimits{});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_GT(last.bytes_total, 0);
  EXPECT_EQ(last.bytes_read, last.bytes_total);
}

TEST(TuOrder, OneGraphThatMemoryDoesNotHoldIsRefused) {
  TempDir temp;
  const Files files = ManyEdges(2, 4000, 1);
  WriteFiles(temp.path() / "source", WithRows(files, OneOfEach(2, 4000)));
  const auto summary = ImportTu(temp.path() / "source", temp.path() / "store", {.source = {}, .split = {}},
                                ImportLimits{.memory_bytes = 50'000});
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("take more memory than an import's limit"));
}

TEST(TuOrder, SharedSetsInAnyOrder) {
  if (SharedTu("MUTAG").empty()) GTEST_SKIP() << "no ../shared/data/tu";
  TempDir temp;
  ASSERT_EQ(std::system(absl::StrCat("cd ", temp.path().string(), " && python3 -m zipfile -e ",
                                     SharedTu("MUTAG").string(), " .")
                            .c_str()),
            0);
  // The files are renamed to S, so that the importer finds them by name.
  Files files;
  for (const char* table : {"A", "graph_indicator", "graph_labels", "node_labels", "edge_labels"}) {
    files[absl::StrCat("S_", table, ".txt")] = FileBytes(temp.path() / "MUTAG" / absl::StrCat("MUTAG_", table, ".txt"));
  }
  const std::vector<std::string> lines = Lines(files.at("S_A.txt"));
  ASSERT_EQ(lines.size(), 7442U);
  // Takes every 37th row from row 0, then from row 1, and so on. Rows of one graph lose their order too, so that
  // equal edges can only be found by their ends.
  std::vector<size_t> rows(lines.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::ranges::sort(rows, {}, [](size_t row) { return std::pair(row % 37, row); });
  const std::string shuffled = StoreBytes(temp.path() / "a", WithRows(files, rows), {.source = {}, .split = {}});
  const auto set = GraphSet::Open(temp.path() / "a" / "store");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)->summary().all.edges, 7442);
  // The same rows, grouped by graph in the graphs' order. Within a graph they keep the shuffled order.
  const std::vector<std::string> graphs = Lines(files.at("S_graph_indicator.txt"));
  const auto graph_of = [&](size_t row) {
    const std::vector<std::string> ends = absl::StrSplit(lines[row], ',');
    return std::stoi(graphs.at(std::stoul(ends[0]) - 1));
  };
  std::vector<std::pair<int, size_t>> places;
  places.reserve(rows.size());
  for (size_t at = 0; at < rows.size(); ++at) places.emplace_back(graph_of(rows[at]), at);
  std::ranges::sort(places);
  std::vector<size_t> in_order;
  in_order.reserve(rows.size());
  for (const auto& [graph, at] : places) in_order.push_back(rows[at]);
  EXPECT_TRUE(StoreBytes(temp.path() / "b", WithRows(files, in_order), {.source = {}, .split = {}}) == shuffled);
}

}  // namespace
}  // namespace permafrost::data
