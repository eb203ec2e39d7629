// Tests jobs that may not use bfloat16, and one that learns with it.
#include "train/loop/torch_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "nn/ops/lowering.h"
#include "recorder.h"
#include "runner_fixture.h"

namespace permafrost::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<FieldViolation> Refused(DeviceKind device, bool can_round, spec::Lowering lowering) {
  spec::ModelOptions model;
  model.lowering = lowering;
  EXPECT_EQ(CheckPrecision(model, device, can_round, "spec."), absl::OkStatus());
  model.precision = spec::Precision::kBfloat16;
  return GetViolations(CheckPrecision(model, device, can_round, "spec."));
}

TEST(CheckPrecision, Bfloat16WantsACpuThatCan) {
  EXPECT_THAT(Refused(DeviceKind::kCpu, true, spec::Lowering::kAuto), IsEmpty());
  EXPECT_THAT(Refused(DeviceKind::kCpu, true, spec::Lowering::kPlain), IsEmpty());
  EXPECT_THAT(Refused(DeviceKind::kCpu, false, spec::Lowering::kAuto),
              ElementsAre(FieldViolation{"spec.model.precision",
                                         "bfloat16 wants a processor with AVX512-BF16, which this server's has not; "
                                         "accepted: float32"}));
  EXPECT_THAT(Refused(DeviceKind::kMps, true, spec::Lowering::kAuto),
              ElementsAre(FieldViolation{"spec.model.precision",
                                         "bfloat16 is computed on CPUs, and this server's device is mps; accepted: "
                                         "float32"}));
  EXPECT_THAT(Refused(DeviceKind::kCpu, true, spec::Lowering::kShapeFree),
              ElementsAre(FieldViolation{"spec.model.precision",
                                         "bfloat16 is given with lowering shape-free; accepted: float32"}));
}

TEST_F(RunnerTest, AJobOfBfloat16LearnsAsOneOfFloat32OrIsRefused) {
  spec::TrainOptions options = Options();
  options.model.precision = spec::Precision::kBfloat16;
  Recorder rounded, full;
  const auto outcome = Run(options, "rounded", rounded);
  if (!nn::CanRoundFactors()) {
    EXPECT_THAT(GetViolations(outcome.status()), testing::SizeIs(1)) << outcome.status();
    return;
  }
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(Run(Options(), "full", full).ok());
  ASSERT_EQ(rounded.epochs.size(), full.epochs.size());
  const double a = rounded.epochs.front().train_loss, b = full.epochs.front().train_loss;
  EXPECT_NE(a, b) << "nothing was rounded";
  EXPECT_NEAR(a, b, 0.02 * b) << "before rounding has led elsewhere";
  EXPECT_LT(rounded.epochs.back().train_loss, a / 2);
  Recorder again;
  ASSERT_TRUE(Run(options, "again", again).ok());
  EXPECT_EQ(Artifact("rounded", kLastWeightsFile), Artifact("again", kLastWeightsFile));
}

}  // namespace
}  // namespace permafrost::train
