#include "graphcache/census.h"

#include <gtest/gtest.h>

namespace permafrost::graphcache {
namespace {

// Nodes, edges, graphs at three shapes.
const std::vector<std::vector<int64_t>> kShapes{{60, 200, 9}, {31, 77, 4}, {37, 90, 7}};

TEST(FindSum, FindsThePlainestSum) {
  constexpr int64_t kElsewhere[] = {52, 61, 5};
  const struct {
    const char* why;
    std::vector<int64_t> values;
    int64_t elsewhere;
  } kCases[] = {
      {"nodes", {60, 31, 37}, 52},
      {"edges", {200, 77, 90}, 61},
      {"nodes and a constant", {61, 32, 38}, 53},
      {"graphs without a constant", {2, -3, 0}, -2},
      {"edges and nodes", {260, 108, 127}, 113},
      {"edges without nodes, and a constant", {143, 49, 56}, 12},
      {"twice the graphs", {18, 8, 14}, 10},
      {"64 times the nodes", {3840, 1984, 2368}, 3328},
      {"64 times the nodes and a constant", {3841, 1985, 2369}, 3329},
  };
  for (const auto& c : kCases) {
    const auto sum = FindSum(c.values, kShapes);
    ASSERT_TRUE(sum.has_value()) << c.why;
    for (size_t k = 0; k < kShapes.size(); ++k) EXPECT_EQ(sum->At(kShapes[k]), c.values[k]) << c.why;
    EXPECT_EQ(sum->At(kElsewhere), c.elsewhere) << c.why;
  }
}

TEST(FindSum, FindsNoneWhereThereIsNone) {
  const struct {
    const char* why;
    std::vector<int64_t> values;
  } kCases[] = {{"a square", {3600, 961, 1369}},
                {"half", {30, 15, 18}},
                {"a product", {540, 124, 259}},
                {"three sizes", {269, 112, 134}},
                {"anything", {1, 2, 4}}};
  for (const auto& c : kCases) EXPECT_FALSE(FindSum(c.values, kShapes).has_value()) << c.why;
}

TEST(FindSum, NothingFollowsFromNoSizes) {
  const std::vector<std::vector<int64_t>> none(3);
  EXPECT_FALSE(FindSum(std::vector<int64_t>{1, 2, 3}, none).has_value());
}

}  // namespace
}  // namespace permafrost::graphcache
