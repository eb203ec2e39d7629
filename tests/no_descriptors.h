// Takes from the process every file descriptor that it might still open, until destroyed: the next open fails with
// EMFILE, as on a daemon with thousands of watchers.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

namespace permafrost {

class NoDescriptors {
 public:
  NoDescriptors() {
    if (getrlimit(RLIMIT_NOFILE, &before_) != 0) std::abort();
    // The lowest descriptor that is free is the first that an open would get.
    const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (lowest < 0) std::abort();
    close(lowest);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest);
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) std::abort();
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace permafrost
