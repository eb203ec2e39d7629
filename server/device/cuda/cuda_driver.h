// NVIDIA's driver tells which cards this machine has. It is asked before anything of libtorch's CUDA half is loaded,
// which is large, and warns at length where there is no card. Threads: safe anywhere.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace permafrost::device {

inline constexpr char kCudaDriverFile[] = "libcuda.so.1";

// Calls of the driver, which return 0 or an error of CUresult. Source: CUDA driver API, cuInit, cuDriverGetVersion,
// cuDeviceGetCount.
struct CudaDriver {
  int (*init)(unsigned flags) = nullptr;
  int (*version)(int* version) = nullptr;  // 1000 * major + 10 * minor of CUDA
  int (*cards)(int* cards) = nullptr;
};

// Loads the driver from the library `path`, which stays loaded. Errors: FailedPrecondition in one line: it is missing,
// or is no driver.
absl::StatusOr<CudaDriver> LoadCudaDriver(const std::string& path = kCudaDriverFile);

// Returns how many cards the driver shows to this process, at least 1. Errors: FailedPrecondition in one line: there is
// none, or the driver does not begin.
absl::StatusOr<int> CountCards(const CudaDriver& driver);

// Checks that the driver serves programs made for CUDA `wanted`, a number as `version` writes it. Errors:
// FailedPrecondition in one line.
absl::Status CheckDriverVersion(const CudaDriver& driver, int wanted);

}  // namespace permafrost::device
