// Parallel loops, by OpenMP. Under ThreadSanitizer, which does not know OpenMP's threads, the loops use std::thread.
// Threads: safe anywhere. The callables run on up to `threads` threads at once. They may throw: after an exception no
// new pieces are begun, and the caller gets the exception once all threads are done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>

#ifdef __SANITIZE_THREAD__
#include <vector>
#endif

namespace permafrost {
namespace parallel_internal {

// Keeps the first exception of several threads, because no exception may leave a parallel region.
class Caught {
 public:
  template <class Call>
  void Try(const Call& call) {
    try {
      call();
    } catch (...) {
      if (!failed_.exchange(true)) thrown_ = std::current_exception();
    }
  }
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // Call it after the threads have ended.
  void Rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::exception_ptr thrown_;  // written by the thread that set failed_
};

// Calls work(0) on the calling thread, and each of work(1) to work(workers - 1) on a thread of its own. If OpenMP
// provides only n threads, calls only work(0) to work(n - 1).
template <class Work>
void OnWorkers([[maybe_unused]] int workers, const Work& work) {
#ifdef __SANITIZE_THREAD__
  std::vector<std::thread> others;
  for (int w = 1; w < workers; ++w) others.emplace_back([&work, w] { work(w); });
  work(0);
  for (std::thread& other : others) other.join();
#else
  // This code numbers the threads itself instead of calling omp_get_thread_num, so that it needs no OpenMP header.
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> others{0};
#pragma omp parallel num_threads(workers)
  { work(std::this_thread::get_id() == caller ? 0 : ++others); }
#endif
}

}  // namespace parallel_internal

// Splits [0, count) into pieces of at most `piece` elements, and calls body(begin, end, worker) for each piece, in
// any order. `worker` is from 0 to threads - 1, and each worker runs one call at a time. With one piece or one
// thread, all calls run on the calling thread.
template <class Body>
void ParallelFor(int threads, int64_t count, int64_t piece, const Body& body) {
  const int64_t pieces = piece > 0 ? (count + piece - 1) / piece : 0;
  parallel_internal::Caught caught;
  // Pieces are not assigned in advance, because the cost of a piece depends on the degrees of its nodes. A free
  // thread takes the next piece.
  std::atomic<int64_t> next{0};
  const auto work = [&](int worker) {
    for (int64_t p = next++; p < pieces && !caught.failed(); p = next++) {
      caught.Try([&] { body(p * piece, std::min(count, (p + 1) * piece), worker); });
    }
  };
  const int workers = static_cast<int>(std::min<int64_t>(threads, pieces));
  if (workers <= 1) {
    work(0);
  } else {
    parallel_internal::OnWorkers(workers, work);
  }
  caught.Rethrow();
}

// Calls make(piece, worker) for each piece from 0 to pieces - 1 on several threads, as ParallelFor does. Calls
// take(piece) on the calling thread for each made piece, in ascending order. While take(piece) runs, other threads go
// on to make later pieces.
template <class Make, class Take>
void ParallelInOrder(int threads, int64_t pieces, const Make& make, const Take& take) {
  const int workers = static_cast<int>(std::min<int64_t>(threads, pieces));
  if (workers <= 1) {
    for (int64_t p = 0; p < pieces; ++p) {
      make(p, 0);
      take(p);
    }
    return;
  }
  parallel_internal::Caught caught;
  std::atomic<int64_t> next{0};
  const auto made = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(pieces));
  const auto make_next = [&](int worker) {
    const int64_t p = next++;
    if (p >= pieces || caught.failed()) return false;
    caught.Try([&] {
      make(p, worker);
      made[static_cast<size_t>(p)].store(true, std::memory_order_release);
    });
    return true;
  };
  parallel_internal::OnWorkers(workers, [&](int worker) {
    if (worker != 0) {
      while (make_next(worker)) {
      }
      return;
    }
    for (int64_t taken = 0; taken < pieces && !caught.failed();) {
      if (made[static_cast<size_t>(taken)].load(std::memory_order_acquire)) {
        caught.Try([&] { take(taken); });
        ++taken;
      } else if (!make_next(0)) {
        // No piece is left to begin, and another thread is still making this one.
        std::this_thread::yield();
      }
    }
  });
  caught.Rethrow();
}

}  // namespace permafrost
