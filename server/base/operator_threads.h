// The number of threads for Permafrost's operators, if it differs from libtorch's.
// Threads: each thread that runs operators has its own number.
#pragma once

namespace permafrost {

// The part of a job's threads that libtorch's operators use. Permafrost's own operators use all.
enum class TorchThreads { kAll, kOne };

namespace operator_threads_internal {
inline thread_local int own_threads = 0;
}  // namespace operator_threads_internal

// 0: Permafrost's operators use as many threads as libtorch's.
inline void SetOperatorThreads(int threads) { operator_threads_internal::own_threads = threads; }
inline int OperatorThreads() { return operator_threads_internal::own_threads; }

}  // namespace permafrost
