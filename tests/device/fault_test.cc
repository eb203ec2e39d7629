#include "device/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "base/status.h"

namespace permafrost::device {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DeviceFaultTest, SomeErrorsLeaveTheDeviceUnusable) {
  const struct {
    const char* why;
    std::optional<int32_t> code;
    const char* text;
    bool fatal;
  } kCases[] = {
      {"illegal address, by its code", 700, "CUDA error: whatever it says", true},
      {"assertion in a kernel", 710, "CUDA error: device-side assert triggered", true},
      {"memory that cannot be corrected", 214, "CUDA error: uncorrectable ECC error encountered", true},
      {"launch failure", 719, "CUDA error: unspecified launch failure", true},
      {"an error that CUDA has no name for", 999, "CUDA error: unknown error", true},
      {"without a code, by its text", std::nullopt, "CUDA error: an illegal memory access was encountered", true},
      {"of thrust", std::nullopt, "reduce failed: cudaErrorAssert: device-side assert triggered", true},
      {"of the driver", std::nullopt, "CUDA driver error: unknown error", true},
      {"of cuBLAS, after such an error", std::nullopt,
       "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`", true},
      {"Metal ignores what this process submits", std::nullopt,
       "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)",
       true},
      {"Metal met a page fault", std::nullopt,
       "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)", true},
      {"too little memory for one launch", 2, "CUDA error: out of memory", false},
      {"an invalid argument of one call", 1, "CUDA error: invalid argument", false},
      {"a kernel that this build lacks", 209, "CUDA error: no kernel image is available for execution", false},
      {"MPS found an index out of bounds, and goes on", 1, "MPS: index 7 is out of bounds", false},
      {"cuBLAS found no memory", std::nullopt, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", false},
      {"Metal found no memory", std::nullopt,
       "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)", false},
      {"an operator's own check", std::nullopt, "mat1 and mat2 shapes cannot be multiplied", false},
      {"something unknown elsewhere", std::nullopt, "unknown error", false},
  };
  for (const auto& c : kCases) EXPECT_EQ(IsFatalToDevice(c.code, c.text), c.fatal) << c.why;
}

TEST(DeviceFaultTest, SuchAnErrorIsTransientAndOneLine) {
  const c10::AcceleratorError error({__func__, __FILE__, 1}, 700,
                                    "CUDA error: an illegal memory access was encountered\nSearch for it\n");
  const absl::Status status = StatusOf(error);
  EXPECT_TRUE(IsDeviceFault(status));
  EXPECT_TRUE(IsTransient(status)) << "the job is not to blame before another process has tried it";
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA error: an illegal memory access was encountered"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  EXPECT_TRUE(IsDeviceFault(Annotate(status, "job a"))) << "through annotations";
}

TEST(DeviceFaultTest, OtherErrorsAreOfTheWork) {
  const absl::Status status = StatusOf(c10::Error({__func__, __FILE__, 1}, "sizes do not match"));
  EXPECT_FALSE(IsDeviceFault(status));
  EXPECT_FALSE(IsTransient(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("libtorch: sizes do not match"));
  EXPECT_FALSE(IsDeviceFault(StatusOf(std::runtime_error("a file is missing"))));
  EXPECT_TRUE(IsDeviceFault(StatusOf(std::runtime_error("copy: cudaErrorLaunchFailure: unspecified launch failure"))));
}

TEST(DeviceFaultTest, TooLittleMemoryIsToldAsThatWhoeverFindsIt) {
  const char* const texts[] = {
      "CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the documentation",  // from libtorch's allocator
      "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'",       // from the driver, for a graph
      "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
      "MPS backend out of memory (MPS allocated: 8.00 GB)",
      "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
  };
  for (const char* const text : texts) {
    const absl::Status status = StatusOf(c10::Error({__func__, __FILE__, 1}, text));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("out of device memory: ")) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n"))) << text;
    EXPECT_FALSE(IsDeviceFault(status)) << text;
  }
  EXPECT_EQ(StatusOf(c10::OutOfMemoryError({__func__, __FILE__, 1}, "cannot allocate 7 bytes")).message(),
            "out of device memory: cannot allocate 7 bytes");
  EXPECT_FALSE(IsOutOfMemory("an operator ran out of memory formats"));
}

TEST(DeviceFaultTest, ADestructorPassesOverAFatalErrorOnly) {
  EXPECT_NO_THROW(UnlessFatal([] {
    throw c10::AcceleratorError({__func__, __FILE__, 1}, 719, "CUDA error: unspecified launch failure");
  }));
  EXPECT_THROW(UnlessFatal([] { throw c10::Error({__func__, __FILE__, 1}, "sizes do not match"); }), c10::Error);
}

}  // namespace
}  // namespace permafrost::device
