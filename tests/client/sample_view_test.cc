#include "client/sampling_view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

using testing::HasSubstr;

v1::SampleDatasetResponse Neighbors(int edges, float weight) {
  v1::SampleDatasetResponse sample;
  sample.add_nodes(7);
  sample.add_nodes_of_hop(1);
  sample.add_nodes_of_hop(edges);
  for (int i = 0; i < edges; ++i) {
    auto& edge = *sample.add_edges();
    edge.set_source(static_cast<uint32_t>(100 + i));
    edge.set_target(7);
    edge.set_hop(1);
    edge.set_weight(weight);
  }
  sample.set_seconds(0.25);
  return sample;
}

TEST(SampleView, NeighborsHopByHop) {
  EXPECT_EQ(RenderSample(Neighbors(2, 1), {}),
            "2 edges around 1 node in 0.25 s\n"
            "\n"
            "HOP  NEW NODES  EDGES\n"
            "  0          1      -\n"
            "  1          2      2\n"
            "\n"
            "HOP  SOURCE  TARGET\n"
            "  1     100       7\n"
            "  1     101       7\n");
}

TEST(SampleView, WeightsAreShownWhereThereAreAny) {
  EXPECT_THAT(RenderSample(Neighbors(1, 0.5), {}), HasSubstr("HOP  SOURCE  TARGET  WEIGHT\n"
                                                             "  1     100       7     0.5\n"));
}

TEST(SampleView, NamesStandInPlaceOfRows) {
  v1::SampleDatasetResponse sample = Neighbors(2, 1);
  for (const auto& [row, text] : {std::pair(7u, "ann"), std::pair(101u, "1,2\n3")}) {
    v1::SampleDatasetResponse::Name& name = *sample.add_names();
    name.set_row(row);
    name.set_name(text);
  }
  // The server names only some of the nodes, and the view still shows the sample.
  const std::string text = RenderSample(sample, {});
  EXPECT_THAT(text, HasSubstr("  1     100     ann\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("101")));
  v1::SampleDatasetResponse walk;
  walk.set_walk_length(2);
  walk.add_walks(7);
  walk.add_walks(8);
  *walk.add_names() = sample.names(0);
  EXPECT_THAT(RenderSample(walk, {}), HasSubstr("ann > 8\n"));
}

TEST(SampleView, AScreenfulAndHowManyMore) {
  const std::string text = RenderSample(Neighbors(1021, 1), {});
  EXPECT_THAT(text, HasSubstr("\n... and 1,001 more edges; all of them with --output json\n"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 30);
}

TEST(SampleView, ANodeWithoutNeighborsHasNoTableOfEdges) {
  const std::string text = RenderSample(Neighbors(0, 1), {});
  EXPECT_THAT(text, HasSubstr("0 edges around 1 node"));
  EXPECT_EQ(text.find("SOURCE"), std::string::npos);
}

v1::SampleDatasetResponse Walks(int walks, int length) {
  v1::SampleDatasetResponse sample;
  sample.set_walk_length(length);
  for (int i = 0; i < walks * length; ++i) sample.add_walks(static_cast<uint32_t>(1000 + i % length));
  return sample;
}

TEST(SampleView, AWalkALine) {
  EXPECT_EQ(RenderSample(Walks(2, 3), {}),
            "2 walks of 3 nodes in 0.00 s\n"
            "\n"
            "1000 > 1001 > 1002\n"
            "1000 > 1001 > 1002\n");
}

TEST(SampleView, AWalkStaysWithinTheTerminal) {
  const std::string text = RenderSample(Walks(1, 10), {.width = 40});
  EXPECT_THAT(text, HasSubstr("\n1000 > 1001 > 1002 > 1003 > ... 6 more\n"));
  const std::string fits = RenderSample(Walks(1, 3), {.width = 19});
  EXPECT_THAT(fits, HasSubstr("\n1000 > 1001 > 1002\n")) << "the last column stays free, no more";
}

TEST(SampleView, ManyWalksAreCut) {
  EXPECT_THAT(RenderSample(Walks(21, 2), {}), HasSubstr("\n... and 1 more walk; all of them with --output json\n"));
}

}  // namespace
}  // namespace permafrost::client
