#include "device/mps/autorelease_pool.h"

#ifdef __APPLE__
// Functions of libobjc's runtime, which has no header for them. Source: clang's documentation of automatic reference
// counting, "Runtime support".
extern "C" void* objc_autoreleasePoolPush(void);
extern "C" void objc_autoreleasePoolPop(void* pool);
#endif

namespace permafrost::device {
namespace {

thread_local int open_pools = 0;

void* Push() {
#ifdef __APPLE__
  return objc_autoreleasePoolPush();
#else
  return nullptr;
#endif
}

void Pop([[maybe_unused]] void* pool) {
#ifdef __APPLE__
  objc_autoreleasePoolPop(pool);
#endif
}

}  // namespace

AutoreleasePool::AutoreleasePool() : pool_(Push()) { ++open_pools; }

AutoreleasePool::~AutoreleasePool() {
  Pop(pool_);
  --open_pools;
}

int AutoreleasePool::depth() { return open_pools; }

}  // namespace permafrost::device
