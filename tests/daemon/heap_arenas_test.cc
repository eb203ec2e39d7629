#include "daemon/process_setup.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace permafrost {
namespace {

// Returns the number of heaps that the C library reports.
int NumHeaps() {
#ifdef __GLIBC__
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  malloc_info(0, out);
  std::fclose(out);
  const std::string info(text, size);
  std::free(text);
  int heaps = 0;
  for (size_t at = info.find("<heap nr="); at != std::string::npos; at = info.find("<heap nr=", at + 1)) ++heaps;
  return heaps;
#else
  return 1;
#endif
}

TEST(HeapArenasTest, ManyThreadsShareFewHeaps) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  KeepFewHeaps();
  constexpr int kThreads = 16;
  // All blocks live at the same time. Otherwise one heap could serve one thread after another.
  std::barrier all_have_memory(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&all_have_memory] {
      void* volatile const memory = std::malloc(10'000);  // volatile, so that the compiler keeps it
      all_have_memory.arrive_and_wait();
      std::free(memory);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(NumHeaps(), 2);
}

}  // namespace
}  // namespace permafrost
