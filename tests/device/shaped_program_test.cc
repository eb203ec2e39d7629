#include "device/mps/mps_backend.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace permafrost::device {
namespace {

using graphcache::StepInputs;

TEST(ShapedProgram, TheProgramItselfRunsAndNothingBefore) {
  int runs = 0;
  std::vector<int> told;
  const auto on_phase = [&](int phase) { told.push_back(phase); };
  const StepProgram program{[&](const StepInputs& in) {
                              ++runs;
                              MarkPhase(1, on_phase);
                              return std::vector<at::Tensor>{in.tensors[0] * 2};
                            },
                            {},
                            on_phase};
  ShapedCapturer capturer(at::kCPU);
  const StepInputs batch{{at::ones({3})}};
  const auto executable = capturer.Capture(program, batch, batch);
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(capturer.shared_bytes(), 0);
  const auto result = (*executable)->Replay(batch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE((*result)->tensors.at(0).equal(at::full({3}, 2.0F)));
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(told, testing::ElementsAre(1));
}

}  // namespace
}  // namespace permafrost::device
