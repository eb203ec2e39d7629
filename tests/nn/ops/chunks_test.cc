// ParallelFor with threads of its own, apart from those of libtorch's operators.
#include "nn/ops/chunks.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace permafrost::nn {
namespace {

class ParallelForTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override {
    SetOperatorThreads(0);
    at::set_num_threads(threads_);
  }
  // Returns the number of parts that ParallelFor splits a range into. Each thread runs one part.
  static int Parts() {
    std::atomic<int> parts = 0;
    ParallelFor(0, 64, 1, [&](int64_t, int64_t) { ++parts; });
    return parts;
  }

 private:
  const int threads_ = at::get_num_threads();
};

TEST_F(ParallelForTest, UsesTheOperatorsThreadsAndLeavesLibtorchsAlone) {
  EXPECT_EQ(Parts(), 1);
  SetOperatorThreads(3);
  EXPECT_EQ(ThreadCount(), 3);
  EXPECT_EQ(Parts(), 3);
  EXPECT_EQ(at::get_num_threads(), 1);
  SetOperatorThreads(0);
  EXPECT_EQ(ThreadCount(), 1);
  EXPECT_EQ(Parts(), 1);
}

TEST_F(ParallelForTest, UsesLibtorchsThreadsWhereItHasNoneOfItsOwn) {
  at::set_num_threads(2);
  EXPECT_EQ(ThreadCount(), 2);
  EXPECT_EQ(Parts(), 2);
}

TEST_F(ParallelForTest, OneOfItsOwnIsFewerThanLibtorchs) {
  at::set_num_threads(4);
  SetOperatorThreads(1);
  EXPECT_EQ(Parts(), 1);
  EXPECT_EQ(at::get_num_threads(), 4);
}

TEST_F(ParallelForTest, ABodyThatThrowsLeavesLibtorchsThreadsAlone) {
  SetOperatorThreads(3);
  EXPECT_THROW(ParallelFor(0, 64, 1, [](int64_t, int64_t) { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_EQ(Parts(), 3);
}

TEST_F(ParallelForTest, ARegionWithinAnotherStaysOnItsThread) {
  SetOperatorThreads(3);
  std::atomic<int> outer = 0, inner = 0;
  ParallelFor(0, 3, 1, [&](int64_t, int64_t) {
    ++outer;
    ParallelFor(0, 64, 1, [&](int64_t, int64_t) { ++inner; });
  });
  EXPECT_EQ(outer, 3);
  EXPECT_EQ(inner, 3);
  EXPECT_EQ(at::get_num_threads(), 1);
}

TEST_F(ParallelForTest, EachThreadHasItsOwnNumber) {
  SetOperatorThreads(3);
  std::thread([] {
    EXPECT_EQ(OperatorThreads(), 0);
    at::set_num_threads(1);
    SetOperatorThreads(2);
    EXPECT_EQ(Parts(), 2) << "the thread's first region";
    EXPECT_EQ(Parts(), 2);
    EXPECT_EQ(at::get_num_threads(), 1);
  }).join();
  EXPECT_EQ(Parts(), 3);
}

}  // namespace
}  // namespace permafrost::nn
