// Turns exceptions of the math library into a Status, and tells which of them mean that a device is unusable until
// the process ends.
// Threads: everything here is pure.
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

// Returns true if an error makes the device unusable until the process ends. `code` is the accelerator's own error
// code (cudaError_t), if the error has one. `text` is the error's message. The text may contain the name of an error
// of CUDA, cuBLAS, cuDNN or Metal anywhere. Sources: CUDA runtime API, "cudaError", whose sticky errors say that the
// process must be terminated; Metal, MTLCommandBufferError.
bool IsFatalToDevice(std::optional<int32_t> code, std::string_view text);
bool IsFatalToDevice(const c10::Error& error);

// Returns true if an error says that the device has no room. The error may come from libtorch's allocator, from a
// library, or from the driver. The driver takes memory for graphs and streams without the allocator. The step that
// met such an error need not be at fault.
bool IsOutOfMemory(std::string_view text);
bool IsOutOfMemory(const c10::Error& error);

// Calls `work` and ignores an error that is fatal to the device, since all later work on the device fails anyway. Any
// other error passes through. Use it in destructors that use the device: there any other error ends the process.
template <class Work>
void UnlessFatal(const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    if (!IsFatalToDevice(error)) throw;
  }
}

// Turns an error of the math library into a Status. It is a device fault (base/status.h) if the error is fatal to the
// device, ResourceExhausted if it means out of memory, and Internal otherwise.
absl::Status StatusOf(const c10::Error& error);
absl::Status StatusOf(const std::exception& error);

// Calls `body`, which returns a Status or a StatusOr, and turns its exceptions into a Status. An error that leaves the
// device unusable becomes a device fault (base/status.h).
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
