#include "base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace permafrost {
namespace {

bool IsIpv4(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool IsIpv6(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsHostName(const std::string& host) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '.'; };
  // A name that consists of digits and dots is a malformed IPv4 address.
  const auto is_letter = [](unsigned char c) { return std::isalpha(c); };
  return std::all_of(host.begin(), host.end(), is_allowed) && std::any_of(host.begin(), host.end(), is_letter);
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const auto refuse = [&text](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" ", what, ": accepted: HOST:PORT such as 127.0.0.1:7433, localhost:0 or [::1]:7433"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return refuse("has no port");
  HostPort out;
  const std::string port = text.substr(colon + 1);
  const bool digits =
      !port.empty() && std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c); });
  if (!digits || !absl::SimpleAtoi(port, &out.port) || out.port > 65535) return refuse("has no port of 0 to 65535");
  out.host = text.substr(0, colon);
  if (out.host.size() >= 2 && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
    if (!IsIpv6(out.host)) return refuse("has no IPv6 address in its brackets");
  } else if (!IsIpv4(out.host) && !IsHostName(out.host)) {
    return refuse("has no host");
  }
  return out;
}

std::string FormatHostPort(const HostPort& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return absl::StrCat(brackets ? "[" : "", address.host, brackets ? "]" : "", ":", address.port);
}

bool IsLoopback(const HostPort& address) {
  if (address.host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace permafrost
