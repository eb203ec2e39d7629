// Threads that share the parts of short parallel regions with the thread that owns them. A region of 20 us is over
// before a sleeping thread wakes, so nobody waits for one: whoever is awake takes the next part, the owner included.
// Threads: a crew belongs to the thread that made it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace permafrost {

class Crew {
 public:
  static constexpr int kMostParts = 0xffff;

  // The crew of the calling thread, of `threads` threads with it. It lasts as long as the thread, or until another size
  // is asked for.
  static Crew& OfThisThread(int threads);

  // helpers: threads beside the owner's; fewer if the system gives no more.
  explicit Crew(int helpers);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return size_; }
  // Calls body(context, part) for each part, 0 to parts - 1, and returns once all have ended. parts: up to kMostParts.
  // Throws the first exception of a body. A body must not call this.
  void Run(int parts, void (*body)(const void* context, int part), const void* context);

 private:
  // The region's number, its parts, and the next of them that nobody has taken, in one word: whoever takes a part of an
  // older region fails.
  static uint64_t Pack(uint32_t region, int parts, int next) {
    return uint64_t{region} << 32 | static_cast<uint64_t>(parts) << 16 | static_cast<uint64_t>(next);
  }
  // Takes parts of this region and calls the body until there are none.
  void Work(uint32_t region);
  void Help();
  // Returns the newest region once it is not `last`.
  uint32_t AwaitRegion(uint32_t last);

  const int size_;
  alignas(64) std::atomic<uint32_t> region_ = 0;  // the newest; helpers wait for the next
  alignas(64) std::atomic<uint64_t> claim_ = 0;
  alignas(64) std::atomic<int> unfinished_ = 0;  // parts
  // Of the region in progress. Whoever has taken one of its parts may read them.
  void (*body_)(const void*, int) = nullptr;
  const void* context_ = nullptr;
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace permafrost
