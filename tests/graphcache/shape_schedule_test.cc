#include "graphcache/shape_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <numeric>
#include <random>

namespace permafrost::graphcache {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<ShapeCount> RandomShapes(std::mt19937& random, size_t distinct, int64_t largest) {
  std::uniform_int_distribution<int64_t> size(1, largest), count(1, 9), graphs(2, 4);
  ShapeCounter counter;
  while (counter.distinct() < static_cast<int64_t>(distinct)) {
    counter.Add({size(random), size(random), graphs(random)}, count(random));
  }
  return counter.Counts();
}

// Returns the rows of all batches, each padded to the cheapest rung that holds it. Returns -1 if a batch fits no
// rung.
int64_t RowsServed(const std::vector<ShapeCount>& shapes, const std::vector<BatchShape>& rungs) {
  int64_t rows = 0;
  for (const ShapeCount& s : shapes) {
    int64_t cheapest = -1;
    for (const BatchShape& rung : rungs) {
      if (rung.Holds(s.shape) && (cheapest < 0 || Rows(rung) < cheapest)) cheapest = Rows(rung);
    }
    if (cheapest < 0) return -1;
    rows += cheapest * s.count;
  }
  return rows;
}

// Returns the fewest rows by trying every ladder. The shapes, ordered by rows, are cut into at most `groups` runs,
// and the last run is padded to the ceiling of all shapes.
int64_t BestByTryingAll(std::vector<ShapeCount> shapes, int64_t groups) {
  std::ranges::sort(shapes, [](const ShapeCount& a, const ShapeCount& b) {
    return std::pair(Rows(a.shape), a.shape) < std::pair(Rows(b.shape), b.shape);
  });
  const size_t n = shapes.size();
  int64_t best = std::numeric_limits<int64_t>::max();
  for (uint32_t cuts = 0; cuts < (1u << (n - 1)); ++cuts) {
    if (std::popcount(cuts) + 1 > groups) continue;
    int64_t rows = 0;
    std::vector<ShapeCount> group;
    for (size_t i = 0; i < n; ++i) {
      group.push_back(shapes[i]);
      if (i + 1 < n && (cuts >> i & 1) == 0) continue;
      const int64_t rung = Rows(Ceiling(i + 1 == n ? shapes : group));
      for (const ShapeCount& s : group) rows += rung * s.count;
      group.clear();
    }
    best = std::min(best, rows);
  }
  return best;
}

TEST(ShapeCounterTest, CountsBatchesByShapeInOrder) {
  ShapeCounter counter;
  counter.Add({9, 20, 3});
  counter.Add({7, 30, 3}, 2);
  counter.Add({9, 20, 3});
  EXPECT_EQ(counter.distinct(), 2);
  EXPECT_EQ(counter.batches(), 4);
  EXPECT_THAT(counter.Counts(), ElementsAre(ShapeCount{{7, 30, 3}, 2}, ShapeCount{{9, 20, 3}, 2}));
}

TEST(CeilingTest, HoldsAllInEachDimension) {
  EXPECT_EQ(Ceiling({{{9, 20, 3}, 1}, {{7, 30, 2}, 5}}), (BatchShape{9, 30, 3}));
  EXPECT_EQ(Ceiling({}), BatchShape());
}

TEST(LadderTest, OfNothingIsEmpty) { EXPECT_THAT(Ladder({}, 4), IsEmpty()); }

TEST(LadderTest, FewShapesAreTheirOwnRungs) {
  // The shapes have 27, 30 and 31 rows and are ordered by them. The last one does not hold the second, and need not.
  EXPECT_THAT(Ladder({{{9, 22, 3}, 1}, {{20, 10, 3}, 1}, {{7, 20, 3}, 1}}, 3),
              ElementsAre(BatchShape{7, 20, 3}, BatchShape{20, 10, 3}, BatchShape{9, 22, 3}));
}

TEST(LadderTest, OneRungIsTheCeiling) {
  EXPECT_THAT(Ladder({{{9, 22, 3}, 1}, {{20, 10, 2}, 1}}, 1), ElementsAre(BatchShape{20, 22, 3}));
  EXPECT_THAT(Ladder({{{9, 22, 3}, 1}, {{20, 10, 2}, 1}}, 0), ElementsAre(BatchShape{20, 22, 3}));
}

TEST(LadderTest, FrequentShapesGetTheRungs) {
  // Without a rung of its own, (11, 20) would be padded to (12, 20) in 100 batches.
  EXPECT_THAT(Ladder({{{10, 20, 3}, 1}, {{11, 20, 3}, 100}, {{12, 20, 3}, 1}}, 2),
              ElementsAre(BatchShape{11, 20, 3}, BatchShape{12, 20, 3}));
  EXPECT_THAT(Ladder({{{10, 20, 3}, 100}, {{11, 20, 3}, 1}, {{12, 20, 3}, 1}}, 2),
              ElementsAre(BatchShape{10, 20, 3}, BatchShape{12, 20, 3}));
}

TEST(LadderTest, NoCutPadsLess) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const auto shapes = RandomShapes(random, 2 + static_cast<size_t>(round % 10), 30);
    const int64_t rungs = 1 + round % 4;
    if (static_cast<int64_t>(shapes.size()) <= rungs) continue;
    const std::vector<BatchShape> ladder = Ladder(shapes, rungs);
    EXPECT_LE(ladder.size(), rungs);
    EXPECT_TRUE(std::ranges::is_sorted(ladder, {}, Rows));
    EXPECT_EQ(ladder.back(), Ceiling(shapes)) << "round " << round;
    const int64_t served = RowsServed(shapes, ladder);
    ASSERT_GE(served, 0) << "a shape fits no rung, round " << round;
    // A batch may find a cheaper rung than its group's rung, and never needs a more expensive one.
    EXPECT_LE(served, BestByTryingAll(shapes, rungs)) << "round " << round;
  }
}

TEST(LadderTest, IsTheBestCutWhereShapesAreNested) {
  // Each shape holds all shapes before it, so a batch's cheapest rung is its group's rung.
  std::mt19937 random(2);
  std::uniform_int_distribution<int64_t> growth(1, 9), count(1, 20);
  for (int round = 0; round < 60; ++round) {
    std::vector<ShapeCount> shapes;
    BatchShape shape{1, 1, 3};
    for (int i = 0; i < 3 + round % 9; ++i) {
      shape.nodes += growth(random);
      shape.edges += growth(random);
      shapes.push_back({shape, count(random)});
    }
    const int64_t rungs = 1 + round % 3;
    if (static_cast<int64_t>(shapes.size()) <= rungs) continue;
    EXPECT_EQ(RowsServed(shapes, Ladder(shapes, rungs)), BestByTryingAll(shapes, rungs)) << "round " << round;
  }
}

TEST(LadderTest, ManyShapesAreMergedAndStillHeld) {
  std::mt19937 random(3);
  const auto shapes = RandomShapes(random, 5000, 400);
  const std::vector<BatchShape> ladder = Ladder(shapes, 32);
  EXPECT_LE(ladder.size(), 32u);
  EXPECT_GE(RowsServed(shapes, ladder), 0);
  EXPECT_EQ(ladder.back(), Ceiling(shapes));
}

TEST(LadderTest, OfMergedShapesItHoldsThemAll) {
  std::mt19937 random(5);
  const auto shapes = RandomShapes(random, 5000, 400);
  const auto merged = MergeNeighbours(shapes);
  EXPECT_LE(merged.size(), static_cast<size_t>(kMaxLadderShapes));
  const auto batches = [](const std::vector<ShapeCount>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0},
                           [](int64_t sum, const ShapeCount& s) { return sum + s.count; });
  };
  EXPECT_EQ(batches(merged), batches(shapes));
  EXPECT_GE(RowsServed(shapes, Ladder(merged, 8)), 0);
  const auto few = RandomShapes(random, 100, 400);
  EXPECT_EQ(Ladder(MergeNeighbours(few), 8), Ladder(few, 8)) << "few shapes stay as they are";
}

// If a schedule was not read to its end, it is planned with its bound, a shape that occurs in no batch.
TEST(LadderTest, ABoundThatNoBatchWasSeenAtIsARungOfItsOwn) {
  std::mt19937 random(6);
  auto shapes = RandomShapes(random, 100, 50);
  const BatchShape seen = Ceiling(shapes);
  const BatchShape bound{seen.nodes * 2, seen.edges * 2, seen.graphs};
  shapes.push_back({bound, 0});
  const std::vector<BatchShape> ladder = Ladder(shapes, 4);
  ASSERT_EQ(ladder.size(), 4U);
  EXPECT_EQ(ladder[3], bound);
  EXPECT_TRUE(seen.Holds(ladder[2])) << "what was seen pads to nothing larger";
}

TEST(LadderOfTest, IsOfTheModesScheduleOrOfThePlansOwnRungs) {
  const ShapeSchedule none;
  EXPECT_TRUE(LadderOf(none, Mode::kTrain, 8).empty());
  EXPECT_TRUE(LadderOf(none, Mode::kEval, 8).empty());
  ShapeSchedule plan;
  plan.train_ceiling = {50, 100, 5};
  EXPECT_EQ(LadderOf(plan, Mode::kTrain, 8), (std::vector<BatchShape>{{50, 100, 5}})) << "a bound alone";
  for (int64_t i = 1; i <= 40; ++i) plan.train_schedule.push_back({{i, i, 5}, 1});
  plan.eval_schedule = plan.train_schedule;
  EXPECT_EQ(LadderOf(plan, Mode::kTrain, 3).size(), 3U);
  EXPECT_EQ(LadderOf(plan, Mode::kTrain, 64).size(), 40U);
  EXPECT_EQ(LadderOf(plan, Mode::kEval, 3).size(), 3U);
  EXPECT_EQ(LadderOf(plan, Mode::kEval, 64).size(), static_cast<size_t>(kMaxEvalRungs));
  plan.train_rungs = {{25, 25, 5}, {50, 100, 5}};
  plan.train_schedule.clear();
  EXPECT_EQ(LadderOf(plan, Mode::kTrain, 1), plan.train_rungs) << "batches come at these, it is not said how many";
  plan.train_rungs = {{10, 20, 5}, {12, 24, 5}, {50, 100, 5}};
  plan.train_schedule = {{{10, 20, 5}, 1}, {{12, 24, 5}, 30}, {{50, 100, 5}, 0}};
  EXPECT_EQ(LadderOf(plan, Mode::kTrain, 8), plan.train_rungs);
  EXPECT_EQ(LadderOf(plan, Mode::kTrain, 2), (std::vector<BatchShape>{{12, 24, 5}, {50, 100, 5}})) << "pads least";
  EXPECT_EQ(LadderOf(plan, Mode::kTrain, 1), (std::vector<BatchShape>{{50, 100, 5}}));
}

TEST(LadderTest, TheLargestIsPlannedQuickly) {
  std::mt19937 random(4);
  const auto shapes = RandomShapes(random, kMaxLadderShapes, 2000);
  const std::clock_t begin = std::clock();
  EXPECT_EQ(Ladder(shapes, kMaxEvalRungs).size(), static_cast<size_t>(kMaxEvalRungs));
  // The call takes 0.1 s of processor time, or 5 s under ThreadSanitizer. Processor time counts because the machine
  // may have other work. The bound is far below the time of a naive algorithm.
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
}

}  // namespace
}  // namespace permafrost::graphcache
