// A crew is one owner thread and its helpers, which share the parts of short parallel regions. A region of 20 us is
// over before a sleeping thread wakes. So no thread waits for a sleeping one: any thread that is awake takes the next
// part. The owner takes parts too. Threads: a crew belongs to the thread that made it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace permafrost {

class Crew {
 public:
  static constexpr int kMostParts = 0xffff;

  // Returns the calling thread's crew of `threads` threads, including the caller. The crew lasts until the thread
  // ends or asks for another size.
  static Crew& OfThisThread(int threads);

  // `helpers` is the number of threads beside the owner. The crew has fewer helpers if the system provides fewer
  // threads.
  explicit Crew(int helpers);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return size_; }
  // Calls body(context, part) for each part from 0 to parts - 1, and returns once all calls have ended. `parts` is at
  // most kMostParts. Throws the first exception of a body. A body must not call Run.
  void Run(int parts, void (*body)(const void* context, int part), const void* context);

 private:
  using Clock = std::chrono::steady_clock;

  // Packs the region's number, its count of parts and the next free part into one word. A claim for an older region
  // therefore fails.
  static uint64_t Pack(uint32_t region, int parts, int next) {
    return uint64_t{region} << 32 | static_cast<uint64_t>(parts) << 16 | static_cast<uint64_t>(next);
  }
  // Takes parts of this region and calls the body until there are none. Returns whether it took any.
  bool Work(uint32_t region);
  void Help();
  // Waits until the newest region differs from `last`, and returns it. Sleeps if the helper has had no work for a
  // while.
  uint32_t AwaitRegion(uint32_t last, Clock::time_point worked);

  alignas(64) std::atomic<uint32_t> region_ = 0;  // the newest region; helpers wait for the next one
  const int size_;
  // body_ and context_ describe the region in progress. Only a thread that has taken one of its parts may read them.
  void (*body_)(const void*, int) = nullptr;
  const void* context_ = nullptr;
  std::exception_ptr error_;  // the region's first exception; written by the thread that set failed_
  std::vector<std::thread> threads_;
  std::atomic<bool> failed_ = false, ends_ = false;
  alignas(64) std::atomic<uint64_t> claim_ = 0;
  alignas(64) std::atomic<int> unfinished_ = 0;  // parts of the region that have not ended
  std::atomic<int> asleep_ = 0;                  // helpers that sleep
};

}  // namespace permafrost
