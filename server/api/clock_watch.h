// The wall clock as the server may believe it: what the api room tells of it, and asks of it.
// Threads: both functions are called on any thread.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace permafrost::api {

struct ClockJump {
  absl::Duration by;  // ahead of what was seen to pass; negative: behind
  absl::Time noticed;
};

struct ClockWatch {
  // The jump that nobody has confirmed. Waits for no disk.
  std::function<std::optional<ClockJump>()> jump = [] { return std::nullopt; };
  // Believes the clock from now on, and returns what it had jumped by; zero: nothing. Waits for the disk. Empty:
  // ConfirmClock is UNIMPLEMENTED.
  std::function<absl::StatusOr<absl::Duration>()> confirm;
};

}  // namespace permafrost::api
