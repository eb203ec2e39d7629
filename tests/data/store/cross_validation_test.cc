#include "data/store/other_splits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "data/ogb_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

// Returns the classes of 103 graphs: 61 of class 0, 30 of class 1, 11 of class 4, and one without a label.
std::vector<float> Classes() {
  std::vector<float> classes;
  for (int g = 0; g < 103; ++g) {
    classes.push_back(g == 50                  ? std::numeric_limits<float>::quiet_NaN()
                      : g % 10 < 6 || g >= 102 ? 0.0F
                      : g % 10 < 9             ? 1.0F
                                               : 4.0F);
  }
  return classes;
}

int64_t CountOf(const std::vector<uint32_t>& graphs, const std::vector<float>& classes, float of) {
  return std::ranges::count_if(graphs, [&](uint32_t graph) { return classes[graph] == of; });
}

TEST(CrossValidation, FoldsAreStratifiedAndPartTheSet) {
  const std::vector<float> classes = Classes();
  for (const int64_t folds : {3, 10}) {
    SCOPED_TRACE(folds);
    std::vector<int> tested(classes.size()), validated(classes.size());
    std::map<float, std::pair<int64_t, int64_t>> range;  // by class: the least and the most test graphs of a fold
    for (int64_t fold = 0; fold < folds; ++fold) {
      const auto splits = DrawFold({.folds = folds, .fold = fold, .seed = 5}, classes);
      std::vector<int> times(classes.size());
      for (const auto& split : splits) {
        EXPECT_TRUE(std::ranges::is_sorted(split));
        for (const uint32_t graph : split) ++times[graph];
      }
      EXPECT_EQ(std::ranges::count(times, 1), std::ssize(classes)) << "each graph stands in one split";
      const auto& test = splits[static_cast<size_t>(Split::kTest)];
      const auto& valid = splits[static_cast<size_t>(Split::kValid)];
      for (const uint32_t graph : test) ++tested[graph];
      for (const uint32_t graph : valid) ++validated[graph];
      for (const float of : {0.0F, 1.0F, 4.0F}) {
        const int64_t count = CountOf(test, classes, of);
        auto& [least, most] = range.emplace(of, std::pair(count, count)).first->second;
        least = std::min(least, count), most = std::max(most, count);
      }
      EXPECT_LE(std::abs(std::ssize(test) - std::ssize(valid)), 1);
      // The test split of the next fold is the validation split of this one.
      EXPECT_EQ(valid, DrawFold({.folds = folds, .fold = (fold + 1) % folds, .seed = 5},
                                classes)[static_cast<size_t>(Split::kTest)]);
    }
    EXPECT_EQ(std::ranges::count(tested, 1), std::ssize(classes));
    EXPECT_EQ(std::ranges::count(validated, 1), std::ssize(classes));
    for (const auto& [of, counts] : range) EXPECT_LE(counts.second - counts.first, 1) << of;
  }
}

TEST(CrossValidation, FollowsFromTheSeed) {
  const std::vector<float> classes = Classes();
  const spec::CrossValidation first{.folds = 5, .fold = 2, .seed = 1}, other{.folds = 5, .fold = 2, .seed = 2};
  EXPECT_EQ(DrawFold(first, classes), DrawFold(first, classes));
  EXPECT_NE(DrawFold(first, classes), DrawFold(other, classes));
}

TEST(CrossValidation, ASetWithAFoldDiffersInItsSplitsAlone) {
  TempDir temp;
  Files files = {
      {"raw/num-node-list.csv", ""}, {"raw/num-edge-list.csv", ""}, {"raw/edge.csv", ""}, {"raw/graph-label.csv", ""}};
  for (int g = 0; g < 20; ++g) {
    absl::StrAppend(&files["raw/num-node-list.csv"], 1 + g % 3, "\n");
    absl::StrAppend(&files["raw/num-edge-list.csv"], "0\n");
    absl::StrAppend(&files["raw/graph-label.csv"], g % 4 == 0 ? 1 : 0, "\n");
  }
  const auto set = MakeStore(temp.path(), files);
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(*WithFold(set, {}), set);
  const auto folded = WithFold(set, {.folds = 5, .fold = 1, .seed = 9});
  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_EQ(ToVector(*(*folded)->labels()), ToVector(*set->labels()));
  EXPECT_EQ((*folded)->summary().all.nodes, set->summary().all.nodes);
  EXPECT_EQ((*folded)->summary().split_name, "fold 1 of 5");
  const auto labels = ToVector(*set->labels());
  for (const auto& [split, name] : kSplitNames.rows) {
    const auto graphs = ToVector(*(*folded)->split(split));
    const SizeStatistics& sizes = (*folded)->summary().splits[static_cast<size_t>(split)];
    EXPECT_EQ(sizes.graphs, std::ssize(graphs)) << name;
    int64_t nodes = 0;
    for (const uint32_t graph : graphs) nodes += 1 + graph % 3;
    EXPECT_EQ(sizes.nodes, nodes) << name;
    // A quarter of all graphs is of class 1, and so is a quarter of each split.
    EXPECT_EQ(4 * CountOf(graphs, labels, 1), std::ssize(graphs)) << name;
  }
  // Plans are stored under the checksum, so each fold must have a checksum of its own.
  const auto next = WithFold(set, {.folds = 5, .fold = 2, .seed = 9});
  EXPECT_NE((*folded)->checksum(), set->checksum());
  EXPECT_NE((*folded)->checksum(), (*next)->checksum());
  EXPECT_EQ(WithFold(set, {.folds = 21}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace permafrost::data
