// Preloaded into a daemon under test (LD_PRELOAD). While the file named by PERMAFROST_TEST_HOLD_FSYNC exists, no
// fsync or fdatasync returns, as on a disk that hangs.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace {

void WaitWhileHeld() {
  const char* path = std::getenv("PERMAFROST_TEST_HOLD_FSYNC");
  while (path != nullptr && access(path, F_OK) == 0) {
    const timespec moment{.tv_sec = 0, .tv_nsec = 10'000'000};
    nanosleep(&moment, nullptr);
  }
}

template <class Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int fsync(int file) {
  WaitWhileHeld();
  static const auto next = Next<int (*)(int)>("fsync");
  return next(file);
}

extern "C" int fdatasync(int file) {
  WaitWhileHeld();
  static const auto next = Next<int (*)(int)>("fdatasync");
  return next(file);
}
