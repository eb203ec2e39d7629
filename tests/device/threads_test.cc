// The threads of a job's operators.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/operators.h"
#include "base/resources.h"
#include "device/backend.h"

namespace permafrost::device {
namespace {

class UseThreadsTest : public testing::Test {
 protected:
  void TearDown() override { UseThreads(threads_); }

 private:
  const int threads_ = at::get_num_threads();
};

TEST_F(UseThreadsTest, LibtorchsOperatorsMayUseOneWherePermafrostsUseAll) {
  EXPECT_EQ(UseThreads(2, TorchThreads::kOne), 2);
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_EQ(OperatorThreads(), 2);
  // This is the next job on the same thread.
  EXPECT_EQ(UseThreads(2), 2);
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_EQ(OperatorThreads(), 0) << "as many as libtorch's";
}

TEST_F(UseThreadsTest, NoNumberMeansAllCores) {
  EXPECT_EQ(UseThreads(0, TorchThreads::kOne), AvailableCores());
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_EQ(OperatorThreads(), AvailableCores());
  EXPECT_EQ(UseThreads(0), AvailableCores());
  EXPECT_EQ(at::get_num_threads(), AvailableCores());
}

}  // namespace
}  // namespace permafrost::device
