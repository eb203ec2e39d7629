// Loops over several threads, by OpenMP. Under ThreadSanitizer, which does not know OpenMP's threads, by std::thread.
// Threads: safe anywhere; the body runs on up to `threads` of them at once and need not be free of
// exceptions: after one, no more pieces are begun, and it is thrown on when all threads are done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

#ifdef __SANITIZE_THREAD__
#include <thread>
#include <vector>
#endif

namespace permafrost {

// Calls body(begin, end, worker) for pieces of at most `piece` that make up [0, count), in any order. worker:
// 0..threads-1, each running one call at a time. One piece, or one thread: all on the calling thread.
template <class Body>
void ParallelFor(int threads, int64_t count, int64_t piece, const Body& body) {
  const int64_t pieces = piece > 0 ? (count + piece - 1) / piece : 0;
  std::atomic<bool> failed{false};
  std::exception_ptr thrown;  // by the piece that set `failed`
  const auto run = [&](int64_t p, int worker) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      body(p * piece, std::min(count, (p + 1) * piece), worker);
    } catch (...) {
      // None may leave a parallel region.
      if (!failed.exchange(true)) thrown = std::current_exception();
    }
  };
  const int workers = static_cast<int>(std::min<int64_t>(threads, pieces));
  if (workers <= 1) {
    for (int64_t p = 0; p < pieces; ++p) run(p, 0);
    if (thrown) std::rethrow_exception(thrown);
    return;
  }
#ifdef __SANITIZE_THREAD__
  std::atomic<int64_t> next{0};
  std::vector<std::thread> pool;
  for (int w = 0; w < workers; ++w) {
    pool.emplace_back([&, w] {
      for (int64_t p = next++; p < pieces; p = next++) run(p, w);
    });
  }
  for (std::thread& t : pool) t.join();
#else
  // Counted here, so that no header of a compiler's OpenMP is needed.
  std::atomic<int> started{0};
  // Pieces go to whoever is free: their costs differ with the degrees of their nodes.
#pragma omp parallel num_threads(workers)
  {
    const int worker = started++;
#pragma omp for schedule(dynamic, 1)
    for (int64_t p = 0; p < pieces; ++p) run(p, worker);
  }
#endif
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace permafrost
