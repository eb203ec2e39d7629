// Text that crosses the wire: a proto3 string must be UTF-8, and what goes into a trailer must be short.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace permafrost::api {

// Each byte that is no part of a valid UTF-8 sequence becomes U+FFFD.
std::string ValidUtf8(std::string_view text);
// ValidUtf8, cut between characters to at most `max_bytes` (>= 3), the last three of them "..." where it was cut.
std::string Clip(std::string_view text, std::size_t max_bytes);

}  // namespace permafrost::api
