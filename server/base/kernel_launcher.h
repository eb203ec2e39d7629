// Runs kernels that were compiled for a device at run time. A device implements it (device/cuda); operators use it
// (nn/gpu). Threads: the device thread.
#pragma once

namespace permafrost {

class KernelLauncher {
 public:
  struct Extent {
    unsigned x = 1, y = 1;
  };

  virtual ~KernelLauncher() = default;
  // Enqueues a kernel on the current stream. arguments: the address of each argument, of the types that the kernel
  // declares; they are read before this returns. Exceptions of the device pass through.
  virtual void Launch(const char* kernel, Extent blocks, Extent threads, void** arguments) const = 0;
};

}  // namespace permafrost
