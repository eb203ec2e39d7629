#include "device/cuda/cuda_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "device/backend.h"

namespace permafrost::device {
namespace {

using testing::HasSubstr;

// CUDA 13.0, which libtorch 2.11 is built for.
constexpr int kWanted = 13000;

// A fake driver that returns these values.
int init_answer = 0, version_answer = kWanted, cards_answer = 1;
constexpr CudaDriver kDriver{.init = [](unsigned) { return init_answer; },
                             .version =
                                 [](int* version) {
                                   *version = version_answer;
                                   return 0;
                                 },
                             .cards =
                                 [](int* cards) {
                                   *cards = cards_answer;
                                   return 0;
                                 }};

class CudaDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    init_answer = 0;
    version_answer = kWanted;
    cards_answer = 1;
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  static std::string Refused() {
    const auto cards = CountCards(kDriver);
    EXPECT_EQ(cards.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(cards.status().message());
  }
};

TEST_F(CudaDriverTest, CountsItsCards) {
  cards_answer = 4;
  EXPECT_EQ(*CountCards(kDriver), 4);
}

TEST_F(CudaDriverTest, AMinorVersionMayBeOlder) {
  EXPECT_EQ(CheckDriverVersion(kDriver, 13020), absl::OkStatus());
  version_answer = 14010;
  EXPECT_EQ(CheckDriverVersion(kDriver, kWanted), absl::OkStatus());
}

TEST_F(CudaDriverTest, ADriverThatIsTooOldIsToldWithBothVersions) {
  version_answer = 12040;
  const absl::Status refused = CheckDriverVersion(kDriver, kWanted);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), "NVIDIA's driver is too old: it serves CUDA 12.4, and libtorch needs 13.0 or newer");
}

TEST_F(CudaDriverTest, AMissingCardIsTold) {
  init_answer = 100;
  EXPECT_THAT(Refused(), HasSubstr("finds no card"));
  init_answer = 0;
  cards_answer = 0;
  EXPECT_THAT(Refused(), HasSubstr("finds no card"));
}

TEST_F(CudaDriverTest, ACardThatIsHiddenIsToldWithTheVariable) {
  init_answer = 100;
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  EXPECT_THAT(Refused(), HasSubstr("CUDA_VISIBLE_DEVICES is '-1'"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(CudaDriverTest, AnyOtherErrorIsToldWithItsNumber) {
  init_answer = 803;  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
  EXPECT_THAT(Refused(), HasSubstr("error 803 of cuInit"));
}

TEST_F(CudaDriverTest, ALibraryThatIsMissingOrIsNoDriverIsNamed) {
  EXPECT_THAT(std::string(LoadCudaDriver("/nowhere/libcuda.so.1").status().message()),
              HasSubstr("NVIDIA's driver cannot be loaded: /nowhere/libcuda.so.1"));
  EXPECT_THAT(std::string(LoadCudaDriver("libgomp.so.1").status().message()),
              HasSubstr("libgomp.so.1 is no driver of NVIDIA: it lacks cuInit"));
}

TEST(CudaModuleTest, AModuleThatIsMissingIsNamed) {
  const auto loaded = LoadCudaModuleFrom("/nowhere/libpermafrost_cuda.so");
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("/nowhere/libpermafrost_cuda.so"));
}

TEST(CudaModuleTest, ALibraryThatIsNoModuleIsRefused) {
  const auto loaded = LoadCudaModuleFrom("libgomp.so.1");
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(kCudaModuleSymbol));
}

TEST(CudaModuleTest, ADeviceThatIsAbsentSaysWhatIsMissing) {
  const auto opened = OpenBackend(DeviceChoice(DeviceKind::kCuda, 63));
  ASSERT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(opened.status().message());
  EXPECT_THAT(message, HasSubstr("device: cuda:63 is not present here: "));
  EXPECT_THAT(message, testing::AnyOf(HasSubstr(kCudaModuleFile), HasSubstr("driver"), HasSubstr("card")));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace permafrost::device
