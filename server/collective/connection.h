// TCP between the ranks of a group: listening, connecting, and bytes both ways at once.
// Threads: one at a time for each object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/monotonic.h"

namespace permafrost::collective {

// A moment that comes, whatever becomes of the wall clock.
class Deadline {
 public:
  explicit Deadline(absl::Duration from_now) : time_(from_now) {}
  // At least zero.
  absl::Duration left() const { return std::max(time_ - since_.Elapsed(), absl::ZeroDuration()); }

 private:
  absl::Duration time_;
  Stopwatch since_;
};

// A socket that is closed when it goes.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& from) noexcept : fd_(std::exchange(from.fd_, -1)) {}
  Socket& operator=(Socket&& from) noexcept {
    std::swap(fd_, from.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Listens on a free port of every address of this machine. Errors: Unavailable, as of all of these.
absl::StatusOr<Socket> Listen();
absl::StatusOr<int> PortOf(const Socket& listening);

// A connection that sends at once, and never blocks.
struct Connection {
  Socket socket;
  std::string host;  // of the other side, as a number
};
absl::StatusOr<Connection> Accept(const Socket& listening, const Deadline& deadline);
absl::StatusOr<Connection> Connect(const std::string& host, int port, const Deadline& deadline);

// Bytes to send and to receive over one connection.
struct Transfer {
  const Connection* connection = nullptr;
  int64_t rank = -1;  // of the other side, for errors; negative: not known
  std::span<const char> out;
  std::span<char> in;
};
// Sends and receives all of it. It polls for a moment before it sleeps, since another rank is rarely late by more, and a
// core that sleeps takes longer to wake than a message to come. Errors: where another side has gone, or where nothing
// came or went for `timeout`, with its rank and host.
// `keep_going`, if given, is asked now and then once it has waited for a second: false ends it with Cancelled.
absl::Status Exchange(std::span<Transfer> transfers, absl::Duration timeout,
                      const std::function<bool()>& keep_going = nullptr);

}  // namespace permafrost::collective
