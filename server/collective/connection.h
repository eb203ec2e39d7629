// TCP connections between the ranks of a group. A rank listens, connects, and transfers messages in both directions
// at once.
// Threads: each object belongs to one thread at a time.
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

// A point in time on a monotonic clock. It also counts as reached once `keep_going`, if given, returns false.
class Deadline {
 public:
  explicit Deadline(absl::Duration from_now, std::function<bool()> keep_going = nullptr)
      : time_(from_now), keep_going_(std::move(keep_going)) {}
  // Returns the time left, at least zero.
  absl::Duration left() const {
    if (keep_going_ && !keep_going_()) return absl::ZeroDuration();
    return std::max(time_ - since_.Elapsed(), absl::ZeroDuration());
  }
  // Returns a deadline that is at most `from_now` away and no later than this deadline. It has this deadline's
  // `keep_going`.
  Deadline Within(absl::Duration from_now) const { return Deadline(std::min(left(), from_now), keep_going_); }

 private:
  absl::Duration time_;
  std::function<bool()> keep_going_;
  Stopwatch since_;
};

// A socket that its destructor closes.
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

// All functions below return Unavailable on failure.

// Listens on a free port of every address of this machine.
absl::StatusOr<Socket> Listen();
absl::StatusOr<int> PortOf(const Socket& listening);

// A connection that sends without delay (TCP_NODELAY) and never blocks.
struct Connection {
  Socket socket;
  std::string host;  // numeric address of the peer
};
// Both also return DeadlineExceeded.
absl::StatusOr<Connection> Accept(const Socket& listening, const Deadline& deadline);
absl::StatusOr<Connection> Connect(const std::string& host, int port, const Deadline& deadline);

// A message to send to one rank, and a message to receive from it.
struct Transfer {
  const Connection* connection = nullptr;
  int64_t rank = -1;  // of the peer, for error messages; negative: unknown
  std::span<const char> out;
  std::span<char> in;
};

// The time that an exchange may take.
struct Patience {
  absl::Duration idle;                              // without any byte sent or received
  absl::Duration total = absl::InfiniteDuration();  // for the whole exchange
  std::function<bool()> keep_going = nullptr;       // called now and then once the exchange was idle for 1 s
};

// Completes every transfer. A header with `number` and the length precedes each message, so that a rank at another
// exchange is found at once.
// It polls for a moment before it sleeps, since another rank is rarely later than that. A sleeping core takes longer
// to wake than a message takes to arrive.
// Errors: Unavailable if the exchange takes longer than `patience` allows; Unavailable, with rank and host, if
// another rank is gone, sends something else or has not answered; Cancelled if keep_going returns false.
absl::Status Exchange(std::span<Transfer> transfers, uint64_t number, const Patience& patience);

}  // namespace permafrost::collective
