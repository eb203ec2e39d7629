// The number of threads that Permafrost's operators use, where libtorch's use fewer.
// Threads: each thread that runs operators has its own number.
#pragma once

namespace permafrost {

namespace operator_threads_internal {
inline thread_local int own_threads = 0;
}  // namespace operator_threads_internal

// 0: as many as libtorch's.
inline void SetOperatorThreads(int threads) { operator_threads_internal::own_threads = threads; }
inline int OperatorThreads() { return operator_threads_internal::own_threads; }

}  // namespace permafrost
