// CUDA C++ compiled by NVRTC, which comes with libtorch's CUDA half. Threads: the device thread.
#pragma once

#include "base/kernel_launcher.h"

namespace permafrost::device {

// CudaModule says what it does.
KernelLauncher* CompileKernels(const char* source);

}  // namespace permafrost::device
