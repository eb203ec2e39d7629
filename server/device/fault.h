// Turns exceptions of libtorch into a Status, and tells which of them mean that a device is unusable until the
// process ends.
// Threads: pure functions.
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
// code (cudaError_t), if the error has one. `text` is the error's message. It may contain the name of an error of
// CUDA, cuBLAS, cuDNN or Metal at any place. Sources: CUDA runtime API, "cudaError", where it says that the process
// must be terminated; Metal, MTLCommandBufferError.
bool IsFatalToDevice(std::optional<int32_t> code, std::string_view text);
bool IsFatalToDevice(const c10::Error& error);

// Returns true if an error means that the device is out of memory. The error may come from libtorch's allocator, from
// a library such as cuBLAS, or from the driver, which allocates memory for graphs and streams itself. The step in
// which the error occurs need not be its cause.
bool IsOutOfMemory(std::string_view text);
bool IsOutOfMemory(const c10::Error& error);

// Calls `work` and ignores an error that is fatal to the device, since all later work on the device fails anyway. Any
// other error passes through. Use it in destructors that use the device. There, any other error ends the process.
template <class Work>
void UnlessFatal(const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    if (!IsFatalToDevice(error)) throw;
  }
}

// Turns an exception of libtorch into a Status. It is a device fault (base/status.h) if the error is fatal to the
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
