// TCP connections between the ranks of a group: listens, connects, and transfers messages in both directions at once.
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

// A point in time on a monotonic clock. If `keep_going` is given, the deadline also counts as reached once it returns
// false.
class Deadline {
 public:
  explicit Deadline(absl::Duration from_now, std::function<bool()> keep_going = nullptr)
      : time_(from_now), keep_going_(std::move(keep_going)) {}
  // Returns the time left, at least zero.
  absl::Duration left() const {
    if (keep_going_ && !keep_going_()) return absl::ZeroDuration();
    return std::max(time_ - since_.Elapsed(), absl::ZeroDuration());
  }
  // Returns a deadline at the earlier of two times: `from_now` from now, and this deadline. The new deadline has the
  // same `keep_going`.
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

// All functions below that can fail return Unavailable on failure.

// Listens on a free port of every address of this machine.
absl::StatusOr<Socket> Listen();
absl::StatusOr<int> PortOf(const Socket& listening);

// A connection whose socket sends without delay (TCP_NODELAY) and never blocks.
struct Connection {
  Socket socket;
  std::string host;  // numeric address of the peer
};
// Accept and Connect also return DeadlineExceeded.
absl::StatusOr<Connection> Accept(const Socket& listening, const Deadline& deadline);
absl::StatusOr<Connection> Connect(const std::string& host, int port, const Deadline& deadline);

// A message to send to one rank, and a message to receive from it.
struct Transfer {
  const Connection* connection = nullptr;
  int64_t rank = -1;  // the peer's rank, for error messages; negative: unknown
  std::span<const char> out;
  std::span<char> in;
};

// The limits of an exchange's time.
struct Patience {
  absl::Duration idle;                              // the longest time without a byte sent or received
  absl::Duration total = absl::InfiniteDuration();  // the longest time of the exchange
  std::function<bool()> keep_going = nullptr;       // called about every 200 ms after 1 s without a byte; false ends
};

// Completes every transfer. Before each message, a rank sends a header with `number` and the message's length. So a
// rank that is at another exchange is detected at once.
// While it waits for other ranks, Exchange polls for a few milliseconds and then sleeps. Other ranks are rarely later
// than these milliseconds, and a sleeping core takes longer to wake than a message takes to arrive.
// Errors: Unavailable, with rank and host, if another rank is gone, sends a wrong header, or has not answered for
// patience.idle; Unavailable if the exchange takes longer than patience.total; Cancelled if keep_going returns false.
absl::Status Exchange(std::span<Transfer> transfers, uint64_t number, const Patience& patience);

}  // namespace permafrost::collective
