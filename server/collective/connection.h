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

// A point in time on a clock that nobody sets. It has come early if `keep_going` is given and returns false.
class Deadline {
 public:
  explicit Deadline(absl::Duration from_now, std::function<bool()> keep_going = nullptr)
      : time_(from_now), keep_going_(std::move(keep_going)) {}
  // At least zero.
  absl::Duration left() const {
    if (keep_going_ && !keep_going_()) return absl::ZeroDuration();
    return std::max(time_ - since_.Elapsed(), absl::ZeroDuration());
  }
  // Returns a deadline that is no later than this one, with the same `keep_going`.
  Deadline Within(absl::Duration from_now) const { return Deadline(std::min(left(), from_now), keep_going_); }

 private:
  absl::Duration time_;
  std::function<bool()> keep_going_;
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

// Every function below returns Unavailable on failure.

// Listens on a free port of every address of this machine.
absl::StatusOr<Socket> Listen();
absl::StatusOr<int> PortOf(const Socket& listening);

// A connection that sends at once, and never blocks.
struct Connection {
  Socket socket;
  std::string host;  // of the other side, as a number
};
// Also DeadlineExceeded.
absl::StatusOr<Connection> Accept(const Socket& listening, const Deadline& deadline);
absl::StatusOr<Connection> Connect(const std::string& host, int port, const Deadline& deadline);

// A message to send to one rank, and one to receive from it.
struct Transfer {
  const Connection* connection = nullptr;
  int64_t rank = -1;  // of the other side, for errors; negative: not known
  std::span<const char> out;
  std::span<char> in;
};

// How long an exchange may take.
struct Patience {
  absl::Duration idle;                              // without a byte that comes or goes
  absl::Duration total = absl::InfiniteDuration();  // in all
  std::function<bool()> keep_going = nullptr;       // asked now and then once it was idle for a second
};

// Completes every transfer. A header of `number` and length precedes each message, so that a rank at another exchange
// is found at once. It polls for a moment before it sleeps, since another rank is rarely late by more, and a core that
// sleeps takes longer to wake than a message to come. Errors: Unavailable, with the rank and host of another side that
// has gone, sends something else, or has not answered; Cancelled, where keep_going says so.
absl::Status Exchange(std::span<Transfer> transfers, uint64_t number, const Patience& patience);

}  // namespace permafrost::collective
