// Edge weights must be finite and not negative, whichever file they come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "data/graph_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

TEST(EdgeWeights, NegativeAndInfiniteOnesAreRefusedByLine) {
  TempDir temp;
  const std::string edges = Npy<int64_t>("<i8", "(2, 2)", {0, 1, 1, 2});
  const Files ogb = {{"raw/num-node-list.csv", "3\n"}, {"raw/edge.csv", "0,1\n1,2\n"}};
  const auto with = [](Files files, const std::string& name, const std::string& text) {
    files[name] = text;
    return files;
  };
  const struct {
    const char* why;
    Files files;
    std::string source, told;
  } kCases[] = {
      {"a list",
       {{"e.csv", "0,1,0\n1,2,-0.5\n"}},
       "e.csv",
       "e.csv:2:3: weight: -0.5 is negative; weights of at least 0 are accepted"},
      {"a list, no number",
       {{"e.csv", "0,1,0\n1,2,inf\n"}},
       "e.csv",
       "e.csv:2:3: weight: \"inf\" is not a finite number"},
      {"a list by the exact path",
       {{"e.csv", "0,1,1\n1,2,+-1\n"}},
       "e.csv",
       "e.csv:2:3: weight: \"+-1\" is not a finite number"},
      {"OGB's text", with(ogb, "raw/edge-weight.csv", "1\n-2\n"), "",
       "raw/edge-weight.csv:2: weight: -2 is negative; weights of at least 0 are accepted"},
      {"OGB's array", with(ogb, "raw/edge-weight.npy", Npy<float>("<f4", "(2,)", {1, -2})), "",
       "raw/edge-weight.npy: element [1]: -2 is negative; weights of at least 0 are accepted"},
      {"arrays",
       {{"edge_index.npy", edges}, {"edge_weight.npy", Npy<float>("<f4", "(2,)", {-3, 1})}},
       "",
       "edge_weight.npy: element [0]: -3 is negative; weights of at least 0 are accepted"},
      {"arrays, infinite",
       {{"edge_index.npy", edges}, {"edge_weight.npy", Npy<float>("<f4", "(2,)", {1, INFINITY})}},
       "",
       "edge_weight.npy: element [1]: is not a finite number"},
  };
  for (const auto& c : kCases) {
    std::filesystem::remove_all(temp.path() / "source");
    WriteFiles(temp.path() / "source", c.files);
    const ImportOptions options{.source =
                                    c.source.empty() ? temp.path() / "source" : temp.path() / "source" / c.source};
    const auto summary = ImportGraphInto(temp.path() / "store", options);
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_EQ(std::string(summary.status().message()), c.told) << c.why;
  }
}

TEST(EdgeWeights, ZeroIsOne) {
  TempDir temp;
  WriteText(temp.path() / "e.csv", "0,1,0\n1,2,-0\n2,0,1e-50\n");
  const auto graph =
      MakeGraph(temp.path() / "store", {.source = temp.path() / "e.csv", .inverse_edges = InverseEdges::kKeep});
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(Values(graph->view().in.weights), ::testing::ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace permafrost::data
