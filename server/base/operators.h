// The means by which a device (server/device) runs Permafrost's own operators (server/nn): the number of threads, and
// the launcher of kernels.
#pragma once

namespace permafrost {

// The threads that libtorch's operators use: all threads of the job, or one. Permafrost's own operators always use
// all threads of the job.
enum class TorchThreads { kAll, kOne };

namespace operator_threads_internal {
inline thread_local int own_threads = 0;
}  // namespace operator_threads_internal

// Sets how many threads Permafrost's operators use when the calling thread runs them. 0: as many as libtorch.
inline void SetOperatorThreads(int threads) { operator_threads_internal::own_threads = threads; }
inline int OperatorThreads() { return operator_threads_internal::own_threads; }

// Launches kernels that were compiled for the device while the process runs. Threads: the device thread.
class KernelLauncher {
 public:
  struct Extent {
    unsigned x = 1, y = 1;
  };

  virtual ~KernelLauncher() = default;
  // Enqueues a kernel on the current stream. `arguments` holds the addresses of the arguments, which have the types
  // that the kernel declares. Launch reads the arguments before it returns. Exceptions of the device pass through.
  virtual void Launch(const char* kernel, Extent blocks, Extent threads, void** arguments) const = 0;
};

}  // namespace permafrost
