// Until destroyed, leaves this process only `left` free file descriptors. The next open beyond them fails with
// EMFILE, as on a daemon with thousands of watchers.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

namespace permafrost {

class NoDescriptors {
 public:
  explicit NoDescriptors(int left = 0) {
    if (getrlimit(RLIMIT_NOFILE, &before_) != 0) std::abort();
    // When UBSan meets a class for the first time, it checks through a pipe whether the object is readable. It would
    // get no descriptors for that later, so it meets these classes now.
    std::stringstream seen;
    seen << std::ifstream().good() << std::ofstream().good();
    // An open returns the lowest free descriptor.
    std::vector<int> lowest;
    for (int i = 0; i <= left; ++i) lowest.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (lowest.back() < 0) std::abort();
    for (const int descriptor : lowest) close(descriptor);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest.back());
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) std::abort();
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace permafrost
