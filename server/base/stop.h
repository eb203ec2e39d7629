// Asking a long piece of work to end. Threads: safe anywhere.
#pragma once

#include <stop_token>

#include "absl/status/status.h"

namespace permafrost {

// Cancelled once a stop is requested.
inline absl::Status CheckStop(const std::stop_token& stop) {
  return stop.stop_requested() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

}  // namespace permafrost
