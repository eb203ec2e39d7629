// Addresses to listen on, in the form that users write: 127.0.0.1:7433, localhost:0, [::1]:7433.
// Threads: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace permafrost {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};

// Errors: InvalidArgument, with the value and what is accepted.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);
// Writes the address, with brackets around an IPv6 address.
std::string FormatHostPort(const HostPort& address);
// Returns whether only this machine can reach the address. Returns false for host names other than `localhost`,
// because they may stand for any address.
bool IsLoopback(const HostPort& address);

}  // namespace permafrost
