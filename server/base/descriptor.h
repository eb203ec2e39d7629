// The parts that the files of this room share: an owned file descriptor, and errors of the system by path.
// Threads: safe anywhere.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace permafrost {

// Closes on every way out; Close() reports what a deferred write could not do.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  bool Close();

 private:
  int fd_;
};

// open(2) with O_CLOEXEC, again where a signal interrupted it.
Descriptor OpenRetrying(const std::filesystem::path& path, int flags, mode_t mode = 0);

// "PATH: cannot ACTION: reason" of an errno: NotFound, PermissionDenied, ResourceExhausted (no space, quota,
// descriptors or memory left) or Internal. All but NotFound are transient (status.h): a file that is not there is a
// fact, any other errno is of the machine as it is just now.
absl::Status SystemError(int error, const std::filesystem::path& path, std::string_view action);

}  // namespace permafrost
