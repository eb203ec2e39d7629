#include "base/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/monotonic.h"

namespace permafrost {
namespace {

TEST(WorkPool, DoesAllThatWasPostedBeforeItEnds) {
  std::atomic<int> done = 0;
  {
    WorkPool pool(3, 1000);
    for (int i = 0; i < 1000; ++i) {
      while (!pool.Post([&] { ++done; })) {
      }
    }
  }
  EXPECT_EQ(done, 1000);
}

TEST(WorkPool, OneThatIsHeldUpLeavesTheOthers) {
  Event held, reached;
  WorkPool pool(2, 10);
  EXPECT_TRUE(pool.Post([&] { held.Wait(); }));
  EXPECT_TRUE(pool.Post([&] { reached.Set(); }));
  reached.Wait();
  held.Set();
}

TEST(WorkPool, RefusesMoreThanMayWait) {
  Event held, begun;
  std::atomic<int> done = 0;
  {
    WorkPool pool(1, 2);
    EXPECT_TRUE(pool.Post([&] {
      begun.Set();
      held.Wait();
    }));
    begun.Wait();
    EXPECT_TRUE(pool.Post([&] { ++done; }));
    EXPECT_TRUE(pool.Post([&] { ++done; }));
    EXPECT_FALSE(pool.Post([&] { ++done; }));
    held.Set();
  }
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace permafrost
