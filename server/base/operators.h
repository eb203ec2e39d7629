// The means by which a device (device) has Permafrost's own operators (nn) run: the number of their threads, and the
// launcher of their kernels.
#pragma once

namespace permafrost {

// The part of a job's threads that libtorch's operators use. Permafrost's own operators use all.
enum class TorchThreads { kAll, kOne };

namespace operator_threads_internal {
inline thread_local int own_threads = 0;
}  // namespace operator_threads_internal

// The number of threads for Permafrost's operators, if it differs from libtorch's; each thread that runs operators has
// its own number. 0: they use as many as libtorch's.
inline void SetOperatorThreads(int threads) { operator_threads_internal::own_threads = threads; }
inline int OperatorThreads() { return operator_threads_internal::own_threads; }

// Runs kernels that were compiled for a device at run time. Threads: the device thread.
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
