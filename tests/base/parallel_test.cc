#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <thread>
#include <vector>

namespace permafrost {
namespace {

TEST(ParallelFor, EveryIndexOnceInPiecesOfAtMostTheSizeAsked) {
  const struct {
    const char* why;
    int threads;
    int64_t count, piece, want_pieces;
  } kCases[] = {
      {"nothing to do", 3, 0, 10, 0},       {"one piece", 3, 7, 10, 1},
      {"whole pieces", 2, 40, 10, 4},       {"a last piece that is smaller", 2, 41, 10, 5},
      {"one thread", 1, 41, 10, 5},         {"more threads than pieces", 8, 15, 10, 2},
      {"no threads are one", 0, 15, 10, 2}, {"pieces of nothing: nothing is run", 2, 15, 0, 0},
  };
  for (const auto& c : kCases) {
    std::vector<std::atomic<int>> visits(static_cast<size_t>(c.count));
    std::atomic<int64_t> pieces{0}, wrong{0};
    ParallelFor(c.threads, c.count, c.piece, [&](int64_t begin, int64_t end, int worker) {
      ++pieces;
      if (begin >= end || end - begin > c.piece || begin % c.piece != 0) ++wrong;
      if (worker < 0 || worker >= std::max(c.threads, 1)) ++wrong;
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    });
    EXPECT_EQ(pieces, c.want_pieces) << c.why;
    EXPECT_EQ(wrong, 0) << c.why;
    for (const auto& count : visits) EXPECT_EQ(count, c.want_pieces == 0 ? 0 : 1) << c.why;
  }
}

TEST(ParallelFor, AWorkerRunsOneCallAtATime) {
  std::vector<std::atomic<int>> running(4);
  std::vector<int64_t> sums(4);  // not atomic: each worker has its own sum
  std::atomic<int> collisions{0};
  ParallelFor(4, 10000, 7, [&](int64_t begin, int64_t end, int worker) {
    const auto w = static_cast<size_t>(worker);
    if (running[w].fetch_add(1) != 0) ++collisions;
    for (int64_t i = begin; i < end; ++i) sums[w] += i;
    running[w].fetch_sub(1);
  });
  EXPECT_EQ(collisions, 0);
  EXPECT_EQ(sums[0] + sums[1] + sums[2] + sums[3], int64_t{10000} * 9999 / 2);
}

TEST(ParallelFor, AnExceptionIsThrownOnAfterTheLoop) {
  for (const int threads : {1, 3}) {
    std::atomic<int> after{0};
    EXPECT_THROW(ParallelFor(threads, 1000, 1,
                             [&](int64_t begin, int64_t, int) {
                               if (begin == 5) throw std::bad_alloc();
                               if (begin > 500) ++after;
                             }),
                 std::bad_alloc)
        << threads;
    EXPECT_LE(after, threads == 1 ? 0 : 499) << threads;
  }
}

TEST(ParallelInOrder, EachPieceIsMadeOnceAndTakenByTheCallerInOrder) {
  for (const int threads : {0, 1, 2, 5}) {
    for (const int64_t pieces : {0, 1, 3, 400}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << pieces << " pieces");
      std::vector<std::atomic<int>> made(static_cast<size_t>(pieces));
      std::vector<int64_t> values(static_cast<size_t>(pieces));  // not atomic: a piece is taken only after it was made
      std::vector<int64_t> taken;
      std::atomic<int64_t> wrong{0};
      const std::thread::id caller = std::this_thread::get_id();
      ParallelInOrder(
          threads, pieces,
          [&](int64_t p, int worker) {
            if (worker < 0 || worker >= std::max(threads, 1)) ++wrong;
            if ((worker == 0) != (std::this_thread::get_id() == caller)) ++wrong;
            ++made[static_cast<size_t>(p)];
            values[static_cast<size_t>(p)] = 3 * p;
          },
          [&](int64_t p) {
            if (std::this_thread::get_id() != caller) ++wrong;
            taken.push_back(values[static_cast<size_t>(p)]);
          });
      EXPECT_EQ(wrong, 0);
      ASSERT_EQ(taken.size(), static_cast<size_t>(pieces));
      for (size_t p = 0; p < taken.size(); ++p) {
        EXPECT_EQ(made[p], 1);
        EXPECT_EQ(taken[p], 3 * static_cast<int64_t>(p));
      }
    }
  }
}

TEST(ParallelInOrder, AnExceptionOfEitherPartIsThrownOn) {
  for (const int threads : {1, 3}) {
    for (const bool making : {true, false}) {
      std::vector<int64_t> taken;
      EXPECT_THROW(ParallelInOrder(
                       threads, 1000,
                       [&](int64_t p, int) {
                         if (making && p == 5) throw std::bad_alloc();
                       },
                       [&](int64_t p) {
                         if (!making && p == 5) throw std::bad_alloc();
                         taken.push_back(p);
                       }),
                   std::bad_alloc)
          << threads;
      EXPECT_LE(taken.size(), 5u) << threads;
    }
  }
}

}  // namespace
}  // namespace permafrost
