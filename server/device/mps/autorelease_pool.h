// Objective-C objects that Metal makes on its way are released when the pool around them ends; a thread without one
// keeps them all. Nothing happens elsewhere than on Apple's systems.
// Threads: made and destroyed on one thread, innermost first.
#pragma once

namespace permafrost::device {

class AutoreleasePool {
 public:
  AutoreleasePool();
  AutoreleasePool(const AutoreleasePool&) = delete;
  ~AutoreleasePool();
  // Pools that are open on this thread.
  static int depth();

 private:
  void* const pool_;
};

}  // namespace permafrost::device
