#include "collective/connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/monotonic.h"

namespace permafrost::collective {
namespace {

// Between ranks that work equally long, about what the slower one is late by.
constexpr absl::Duration kPolling = absl::Milliseconds(2);
// A rank that is to stop goes on for as long as the others do not keep it waiting: a step is best ended.
constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr int64_t kMostSleep = 200;  // milliseconds
constexpr int kBacklog = 64;

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Waits until the socket can do what `events` says; false: the deadline has passed.
bool Await(int fd, short events, const Deadline& deadline) {
  while (true) {
    const absl::Duration left = deadline.left();
    if (left <= absl::ZeroDuration()) return false;
    pollfd wanted{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&wanted, 1, static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 1, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

std::string HostOf(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> name{};
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, name.data(), name.size(), nullptr, 0,
                                NI_NUMERICHOST);
  // A socket of both families shows an IPv4 address as an IPv6 one.
  return error == 0 ? std::string(absl::StripPrefix(name.data(), "::ffff:")) : "";
}

absl::StatusOr<Connection> Prepare(Socket socket) {
  const int on = 1;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      fcntl(socket.fd(), F_SETFL, O_NONBLOCK) != 0 ||
      getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return Failed("a connection cannot be set up");
  }
  return Connection{.socket = std::move(socket), .host = HostOf(address, size)};
}

// A socket of all addresses: of both families where the machine has IPv6.
absl::StatusOr<Socket> Bind(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.open()) return Failed("no socket");
  sockaddr_storage any{};
  socklen_t size = sizeof(sockaddr_in);
  any.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    const int off = 0;
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    size = sizeof(sockaddr_in6);
  }
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&any), size) != 0 || listen(socket.fd(), kBacklog) != 0 ||
      fcntl(socket.fd(), F_SETFL, O_NONBLOCK) != 0) {
    return Failed("cannot listen for other daemons");
  }
  return socket;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Socket> Listen() {
  absl::StatusOr<Socket> both = Bind(AF_INET6);
  return both.ok() ? std::move(both) : Bind(AF_INET);
}

absl::StatusOr<int> PortOf(const Socket& listening) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(listening.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return Failed("no port");
  // The port stands at one place in both kinds of address.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

absl::StatusOr<Connection> Accept(const Socket& listening, const Deadline& deadline) {
  while (Await(listening.fd(), POLLIN, deadline)) {
    const int fd = accept(listening.fd(), nullptr, nullptr);
    if (fd >= 0) {
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      return Prepare(Socket(fd));
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return Failed("cannot accept another daemon");
  }
  return absl::UnavailableError("no other daemon has connected in time");
}

absl::StatusOr<Connection> Connect(const std::string& host, int port, const Deadline& deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(error)));
  }
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  absl::Status failed = absl::UnavailableError(absl::StrCat(host, ": has no address"));
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.open()) continue;
    int error = connect(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (!Await(socket.fd(), POLLOUT, deadline)) {
        error = ETIMEDOUT;
      } else {
        getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (error == 0) return Prepare(std::move(socket));
    failed = absl::UnavailableError(absl::StrCat(host, ":", port, ": ", std::strerror(error)));
  }
  return failed;
}

absl::Status Exchange(std::span<Transfer> transfers, absl::Duration timeout, const std::function<bool()>& keep_going) {
  const auto gone = [](const Transfer& t, absl::string_view why) {
    const std::string& host = t.connection->host;
    return absl::UnavailableError(t.rank < 0 ? absl::StrCat(host, " ", why)
                                             : absl::StrCat("rank ", t.rank, " (", host, ") ", why));
  };
  std::vector<pollfd> waiting;
  Stopwatch idle;
  while (true) {
    bool moved = false, done = true;
    for (Transfer& t : transfers) {
      const int fd = t.connection->socket.fd();
      if (!t.out.empty()) {
        const ssize_t sent = send(fd, t.out.data(), t.out.size(), MSG_NOSIGNAL);
        if (sent > 0) {
          t.out = t.out.subspan(static_cast<size_t>(sent));
          moved = true;
        } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
          return gone(t, absl::StrCat("has gone: ", std::strerror(errno)));
        }
      }
      if (!t.in.empty()) {
        const ssize_t received = recv(fd, t.in.data(), t.in.size(), 0);
        if (received > 0) {
          t.in = t.in.subspan(static_cast<size_t>(received));
          moved = true;
        } else if (received == 0) {
          return gone(t, "has gone: it closed its connection");
        } else if (errno != EAGAIN && errno != EINTR) {
          return gone(t, absl::StrCat("has gone: ", std::strerror(errno)));
        }
      }
      done = done && t.out.empty() && t.in.empty();
    }
    if (done) return absl::OkStatus();
    if (moved) {
      idle.Restart();
      continue;
    }
    const absl::Duration waited = idle.Elapsed();
    if (waited < kPolling) {
      sched_yield();
      continue;
    }
    const auto late = std::ranges::find_if(transfers, [](const Transfer& t) { return !t.out.empty() || !t.in.empty(); });
    if (waited >= kPatience && keep_going && !keep_going()) return absl::CancelledError("stopped while it waited");
    if (waited >= timeout) return gone(*late, absl::StrCat("has not answered for ", absl::FormatDuration(timeout)));
    waiting.clear();
    for (const Transfer& t : transfers) {
      const int events = (t.in.empty() ? 0 : POLLIN) | (t.out.empty() ? 0 : POLLOUT);
      if (events != 0) waiting.push_back({.fd = t.connection->socket.fd(), .events = static_cast<short>(events), .revents = 0});
    }
    const int64_t left = std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout - waited), 1, kMostSleep);
    poll(waiting.data(), waiting.size(), static_cast<int>(left));
  }
}

}  // namespace permafrost::collective
