// A crew runs short parallel regions on one owner thread and its helper threads. A region of 20 us is over before a
// sleeping thread wakes. Parts are therefore not assigned to threads in advance: each thread that is awake, the owner
// included, takes the next free part. Threads: a crew belongs to the thread that made it.
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

  // Packs the region's number, its number of parts and its next free part into one word, so that one compare-and-swap
  // claims a part. The claim fails if a newer region has begun.
  static uint64_t Pack(uint32_t region, int parts, int next) {
    return uint64_t{region} << 32 | static_cast<uint64_t>(parts) << 16 | static_cast<uint64_t>(next);
  }
  // Takes parts of this region and calls the body for each, until no part is free. Returns whether it took a part.
  bool Work(uint32_t region);
  void Help();
  // Waits until region_ differs from `last`, and returns region_. Polls at first. If no region begins soon after
  // `worked`, the time at which the helper's last work ended, sleeps.
  uint32_t AwaitRegion(uint32_t last, Clock::time_point worked);

  alignas(64) std::atomic<uint32_t> region_ = 0;  // the newest region; helpers wait for it to change
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
