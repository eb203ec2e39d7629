#include "train/tasks/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace permafrost::train {
namespace {

TEST(ProbeShapes, DifferInEachDimensionInAWayOfItsOwn) {
  for (const BatchShape& ceiling : {BatchShape{757, 1630, 33}, BatchShape{3, 0, 2}, BatchShape{1, 1, 1},
                                    BatchShape{64, 64, 64}, BatchShape{100'000, 900'000, 1025}}) {
    for (const bool below : {true, false}) {
      const auto shapes = ProbeShapes(ceiling, below);
      const auto distinct = [&](auto value) {
        std::set<int64_t> values;
        for (const BatchShape& s : shapes) values.insert(value(s));
        return values.size();
      };
      const std::string where = ToString(ceiling) + (below ? " below" : "");
      EXPECT_EQ(distinct([](const BatchShape& s) { return s.nodes; }), shapes.size()) << where;
      EXPECT_EQ(distinct([](const BatchShape& s) { return s.edges; }), shapes.size()) << where;
      EXPECT_EQ(distinct([](const BatchShape& s) { return s.graphs; }), shapes.size()) << where;
      // No dimension equals another one plus a constant.
      EXPECT_GT(distinct([](const BatchShape& s) { return s.edges - s.nodes; }), 1U) << where;
      EXPECT_GT(distinct([](const BatchShape& s) { return s.graphs - s.nodes; }), 1U) << where;
      EXPECT_GT(distinct([](const BatchShape& s) { return s.graphs - s.edges; }), 1U) << where;
      EXPECT_TRUE(shapes[0].Holds(ceiling));
      for (const BatchShape& s : shapes) EXPECT_TRUE(s.Holds({2, 2, 2})) << where;
    }
  }
}

TEST(ProbeShapes, LieBelowTheCeilingWhereThereIsRoom) {
  const BatchShape ceiling{757, 1630, 133};
  const auto shapes = ProbeShapes(ceiling, /*below=*/true);
  EXPECT_EQ(shapes[0], ceiling);
  for (size_t p = 1; p < shapes.size(); ++p) {
    EXPECT_TRUE(ceiling.Holds(shapes[p]));
    EXPECT_TRUE(shapes[p].Holds({757 / 2, 1630 / 2, 133 / 2}));
  }
}

}  // namespace
}  // namespace permafrost::train
