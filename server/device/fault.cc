#include "device/fault.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::device {
namespace {

// Values of cudaError_t after which "any further CUDA work will return the same error". libtorch also reports error
// codes of other accelerators, but all of them are smaller.
constexpr std::array<int32_t, 15> kFatalCodes = {
    214,  // cudaErrorECCUncorrectable
    220,  // cudaErrorNvlinkUncorrectable
    226,  // cudaErrorContained
    700,  // cudaErrorIllegalAddress
    702,  // cudaErrorLaunchTimeout
    709,  // cudaErrorContextIsDestroyed
    710,  // cudaErrorAssert
    714,  // cudaErrorHardwareStackError
    715,  // cudaErrorIllegalInstruction
    716,  // cudaErrorMisalignedAddress
    717,  // cudaErrorInvalidAddressSpace
    718,  // cudaErrorInvalidPc
    719,  // cudaErrorLaunchFailure
    721,  // cudaErrorTensorMemoryLeak
    999,  // cudaErrorUnknown
};

// Texts in messages of fatal errors. First come the texts of cudaGetErrorString for the codes above, then texts of
// Metal's command buffers and CUDA's libraries.
constexpr std::array<absl::string_view, 22> kFatalTexts = {
    "an illegal memory access was encountered",
    "device-side assert triggered",
    "unspecified launch failure",
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected",
    "an illegal instruction was encountered",
    "misaligned address",
    "operation not supported on global/shared address space",
    "invalid program counter",
    "hardware stack error",
    "the launch timed out and was terminated",
    "context is destroyed",
    "CUDA error: unknown error",
    "CUDA driver error: unknown error",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUSPARSE_STATUS_EXECUTION_FAILED",
    "kIOGPUCommandBufferCallbackErrorHang",
    "kIOGPUCommandBufferCallbackErrorTimeout",
    "kIOGPUCommandBufferCallbackErrorPageFault",
    "kIOGPUCommandBufferCallbackErrorSubmissionsIgnored",
    "kIOGPUCommandBufferCallbackErrorInnocentVictim",
};

// Texts in messages of errors that mean out of memory. libtorch throws only the second one as c10::OutOfMemoryError.
constexpr std::array<absl::string_view, 8> kOutOfMemoryTexts = {
    "CUDA error: out of memory",    "CUDA out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",   "CUDNN_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED", "CUSOLVER_STATUS_ALLOC_FAILED",
    "MPS backend out of memory",    "kIOGPUCommandBufferCallbackErrorOutOfMemory",
};

std::optional<int32_t> CodeOf(const c10::Error& error) {
  const auto* const accelerator = dynamic_cast<const c10::AcceleratorError*>(&error);
  return accelerator == nullptr ? std::nullopt : std::optional(accelerator->get_error_code());
}

// Returns the first line of `text`: libtorch appends pages of advice to it.
std::string FirstLine(absl::string_view text) {
  return std::string(*absl::StrSplit(text, absl::MaxSplits('\n', 1)).begin());
}

absl::Status FaultOf(absl::string_view text) {
  return AsDeviceFault(absl::UnavailableError(
      absl::StrCat("the device has failed, and stays so until the server starts anew: ", FirstLine(text))));
}

}  // namespace

bool IsFatalToDevice(std::optional<int32_t> code, std::string_view text) {
  if (code && std::ranges::find(kFatalCodes, *code) != kFatalCodes.end()) return true;
  return std::ranges::any_of(kFatalTexts,
                             [text](absl::string_view fatal) { return absl::StrContains(AbslView(text), fatal); });
}

bool IsFatalToDevice(const c10::Error& error) { return IsFatalToDevice(CodeOf(error), error.what_without_backtrace()); }

bool IsOutOfMemory(std::string_view text) {
  return std::ranges::any_of(kOutOfMemoryTexts,
                             [text](absl::string_view known) { return absl::StrContains(AbslView(text), known); });
}

bool IsOutOfMemory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || IsOutOfMemory(error.what_without_backtrace());
}

absl::Status StatusOf(const c10::Error& error) {
  if (IsOutOfMemory(error)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of device memory: ", FirstLine(error.what_without_backtrace())));
  }
  if (IsFatalToDevice(error)) return FaultOf(error.what_without_backtrace());
  return absl::InternalError(absl::StrCat("libtorch: ", error.what_without_backtrace()));
}

absl::Status StatusOf(const std::exception& error) {
  if (IsFatalToDevice(std::nullopt, error.what())) return FaultOf(error.what());
  return absl::InternalError(error.what());
}

}  // namespace permafrost::device
