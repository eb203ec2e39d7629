#include "device/cuda/cuda_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "device/backend.h"

namespace permafrost::device {
namespace {

using testing::HasSubstr;

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
