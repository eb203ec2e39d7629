#include "collective/connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
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

// The time for which an exchange polls before it sleeps. Two ranks with equal work usually reach an exchange within
// about this time of each other.
constexpr absl::Duration kPolling = absl::Milliseconds(2);
// If a rank is asked to stop, it still tries to finish its step. It stops once it has waited this long for other
// ranks.
constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr int64_t kMostSleep = 200;  // milliseconds
constexpr int kBacklog = 64;

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Waits until the socket is ready for `events` (poll(2)). Returns false if the deadline has passed.
bool Await(int fd, short events, const Deadline& deadline) {
  while (true) {
    const absl::Duration left = deadline.left();
    if (left <= absl::ZeroDuration()) return false;
    pollfd wanted{.fd = fd, .events = events, .revents = 0};
    const int ready =
        poll(&wanted, 1, static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 1, kMostSleep)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

std::string HostOf(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> name{};
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, name.data(), name.size(), nullptr, 0,
                                NI_NUMERICHOST);
  // A socket for both IPv4 and IPv6 shows an IPv4 address with this prefix.
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

// Opens a socket that listens on all addresses of `family`. With AF_INET6, it also listens on IPv4 addresses.
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
  // The port is at the same offset in IPv4 and IPv6 addresses.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

absl::StatusOr<Connection> Accept(const Socket& listening, const Deadline& deadline) {
  while (Await(listening.fd(), POLLIN, deadline)) {
    const int fd = accept(listening.fd(), nullptr, nullptr);
    if (fd >= 0) {
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      absl::StatusOr<Connection> connection = Prepare(Socket(fd));
      // If a peer connects and leaves at once, as a port scan does, it is not a rank and is ignored.
      if (connection.ok()) return connection;
      continue;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return Failed("cannot accept another daemon");
  }
  return absl::DeadlineExceededError("no other daemon has connected in time");
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

namespace {

// The header that precedes each message.
struct Header {
  uint64_t number = 0, bytes = 0;
  bool operator==(const Header&) const = default;
};

// One direction of a transfer: the header, the message, and how many bytes of the two have been transferred.
struct Stream {
  char* data[2];
  size_t sizes[2];
  size_t passed = 0;

  bool done() const { return passed == sizes[0] + sizes[1]; }
  // Calls pass(message), which sends or receives as many bytes as the socket allows now. Returns true if any byte was
  // transferred. Errors: the reason why the transfer cannot go on.
  template <class Pass>
  absl::StatusOr<bool> Advance(const Pass& pass) {
    if (done()) return false;
    std::array<iovec, 2> parts{};
    size_t count = 0;
    size_t skip = passed;
    for (size_t i = 0; i < parts.size(); ++i) {
      const size_t skipped = std::min(skip, sizes[i]);
      skip -= skipped;
      if (skipped < sizes[i]) parts[count++] = {.iov_base = data[i] + skipped, .iov_len = sizes[i] - skipped};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t moved = pass(message);
    if (moved > 0) {
      passed += static_cast<size_t>(moved);
      return true;
    }
    if (moved == 0) return absl::UnavailableError("it closed its connection");
    if (errno == EAGAIN || errno == EINTR) return false;
    return absl::UnavailableError(std::strerror(errno));
  }
};

// The state of both directions of one transfer.
struct Both {
  Header own, other, wanted;
  Stream out, in;
};

}  // namespace

absl::Status Exchange(std::span<Transfer> transfers, uint64_t number, const Patience& patience) {
  const auto blame = [](const Transfer& t, absl::string_view what) {
    const std::string& host = t.connection->host;
    return absl::UnavailableError(t.rank < 0 ? absl::StrCat(host, " ", what)
                                             : absl::StrCat("rank ", t.rank, " (", host, ") ", what));
  };
  std::vector<Both> all(transfers.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Transfer& t = transfers[i];
    Both& both = all[i];
    both.own = {.number = number, .bytes = t.out.size()};
    both.wanted = {.number = number, .bytes = t.in.size()};
    // sendmsg takes no pointers to const, but it does not write to the message.
    both.out = {.data = {reinterpret_cast<char*>(&both.own), const_cast<char*>(t.out.data())},
                .sizes = {t.out.empty() ? 0 : sizeof(Header), t.out.size()}};
    both.in = {.data = {reinterpret_cast<char*>(&both.other), t.in.data()},
               .sizes = {t.in.empty() ? 0 : sizeof(Header), t.in.size()}};
  }
  std::vector<pollfd> waiting;
  const Stopwatch begun;
  Stopwatch idle;
  while (true) {
    bool moved = false, done = true;
    for (size_t i = 0; i < all.size(); ++i) {
      Both& both = all[i];
      const int fd = transfers[i].connection->socket.fd();
      const auto sent = both.out.Advance([fd](msghdr& m) { return sendmsg(fd, &m, MSG_NOSIGNAL); });
      if (!sent.ok()) return blame(transfers[i], absl::StrCat("has gone: ", sent.status().message()));
      const auto received = both.in.Advance([fd](msghdr& m) { return recvmsg(fd, &m, 0); });
      if (!received.ok()) return blame(transfers[i], absl::StrCat("has gone: ", received.status().message()));
      if (*received && both.in.passed >= sizeof(Header) && both.other != both.wanted) {
        return blame(transfers[i], absl::StrCat("is at exchange ", both.other.number, " with ", both.other.bytes,
                                                " bytes where exchange ", both.wanted.number, " with ",
                                                both.wanted.bytes, " bytes was expected: the ranks are out of step"));
      }
      moved = moved || *sent || *received;
      done = done && both.out.done() && both.in.done();
    }
    if (done) return absl::OkStatus();
    if (begun.Elapsed() >= patience.total)
      return absl::UnavailableError(
          absl::StrCat("an exchange took longer than ", absl::FormatDuration(patience.total)));
    if (moved) {
      idle.Restart();
      continue;
    }
    const absl::Duration waited = idle.Elapsed();
    if (waited < kPolling) {
      sched_yield();
      continue;
    }
    if (waited >= kPatience && patience.keep_going && !patience.keep_going()) {
      return absl::CancelledError("stopped while it waited");
    }
    const auto late = std::ranges::find_if(all, [](const Both& both) { return !both.in.done() || !both.out.done(); });
    if (waited >= patience.idle) {
      return blame(transfers[static_cast<size_t>(late - all.begin())],
                   absl::StrCat("has not answered for ", absl::FormatDuration(patience.idle)));
    }
    waiting.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      const int events = (all[i].in.done() ? 0 : POLLIN) | (all[i].out.done() ? 0 : POLLOUT);
      const int fd = transfers[i].connection->socket.fd();
      if (events != 0) waiting.push_back({.fd = fd, .events = static_cast<short>(events), .revents = 0});
    }
    const absl::Duration left = std::min(patience.idle - waited, patience.total - begun.Elapsed());
    poll(waiting.data(), waiting.size(),
         static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 1, kMostSleep)));
  }
}

}  // namespace permafrost::collective
