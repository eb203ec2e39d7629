// Exceptions of the math library: which of them tell that a device is unusable until the process ends, and the one
// place where they become a Status. Threads: everything here is pure.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace permafrost::device {

// `code`: the accelerator's own (cudaError_t), where the error has one. `text`: what the error says; a name of CUDA's,
// cuBLAS's, cuDNN's or Metal's is found anywhere in it. Sources: CUDA runtime API, "cudaError", whose sticky errors say
// that the process must be terminated; Metal, MTLCommandBufferError.
bool IsFatalToDevice(std::optional<int32_t> code, std::string_view text);
bool IsFatalToDevice(const c10::Error& error);

// Returns whether an error says that the device has no room. Libtorch's allocator says so, a library, or the driver,
// which takes memory for graphs and streams past the allocator. Such an error says nothing of the step that met it.
bool IsOutOfMemory(std::string_view text);
bool IsOutOfMemory(const c10::Error& error);

// For destructors that use the device: calls `work`, and passes over an error that is fatal to the device, since
// whatever follows on the device fails by itself. Any other error goes on, and ends the process.
template <class Work>
void UnlessFatal(const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    if (!IsFatalToDevice(error)) throw;
  }
}

// An error of the math library as a Status: a device fault (base/status.h) where it is fatal to the device,
// ResourceExhausted where it is out of memory, else Internal.
absl::Status StatusOf(const c10::Error& error);
absl::Status StatusOf(const std::exception& error);

// Calls `body`, which returns a Status or a StatusOr. An error that leaves the device unusable becomes a device fault
// (base/status.h).
template <class Body>
auto CatchTorch(Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::Error& e) {
    return StatusOf(e);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& e) {
    return StatusOf(e);
  }
}

}  // namespace permafrost::device
