// Runs this library's parallel regions. Without OpenMP they run on libtorch's threads. Threads: any.
#pragma once

#include <ATen/Parallel.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cstdint>

#include "base/operators.h"

namespace permafrost::nn {

// Returns how many threads ParallelFor uses.
inline int ThreadCount() { return OperatorThreads() == 0 ? at::get_num_threads() : OperatorThreads(); }

inline void SetOpenMpThreads([[maybe_unused]] int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);
#endif
}

// Runs at::parallel_for with OperatorThreads() threads if they are set. libtorch reads OpenMP's number for the calling
// thread, so it is changed for this region and then restored.
template <class Body>
void ParallelFor(int64_t begin, int64_t end, int64_t grain, const Body& body) {
  const int own = OperatorThreads();
  if (own == 0 || at::in_parallel_region()) return at::parallel_for(begin, end, grain, body);
  at::internal::lazy_init_num_threads();  // else a thread's first region would overwrite the number below
  struct Restored {
    const int outer = at::get_num_threads();
    ~Restored() { SetOpenMpThreads(outer); }
  } restored;
  SetOpenMpThreads(own);
  at::parallel_for(begin, end, grain, body);
}

}  // namespace permafrost::nn
