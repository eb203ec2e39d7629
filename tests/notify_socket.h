// A service manager's end of sd_notify, like systemd's: a datagram socket at a path, or at an abstract name
// ("@NAME").
#pragma once

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace permafrost {

class NotifySocket {
 public:
  explicit NotifySocket(const std::string& name) : fd_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (fd_ < 0 || name.size() >= sizeof(address.sun_path)) std::abort();
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), length) != 0) std::abort();
    const timeval limit{.tv_sec = 60, .tv_usec = 0};
    if (setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0) std::abort();
  }
  ~NotifySocket() { close(fd_); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // Returns the next datagram, or an empty text if none comes within a minute.
  std::string Next() const { return Receive(0); }
  // Returns the next datagram that begins with `beginning`, and drops the others. Empty if none of the next thousand
  // does.
  std::string NextOf(const std::string& beginning) const {
    for (int i = 0; i < 1000; ++i) {
      std::string lines = Next();
      if (lines.empty() || lines.rfind(beginning, 0) == 0) return lines;
    }
    return {};
  }
  // Takes all datagrams that have arrived, and returns whether one of them begins with `beginning`.
  bool HasCome(const std::string& beginning) const {
    bool found = false;
    for (std::string lines = Receive(MSG_DONTWAIT); !lines.empty(); lines = Receive(MSG_DONTWAIT)) {
      found = found || lines.rfind(beginning, 0) == 0;
    }
    return found;
  }

 private:
  std::string Receive(int flags) const {
    char buffer[4096];
    const ssize_t length = recv(fd_, buffer, sizeof(buffer), flags);
    return length > 0 ? std::string(buffer, static_cast<size_t>(length)) : std::string();
  }

  const int fd_;
};

}  // namespace permafrost
