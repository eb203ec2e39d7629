// Values as messages show them: short, on one line, whatever they hold.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace permafrost {

// In double quotes, escaped, cut when long.
std::string Quote(std::string_view value);
// The same without quotes, for what is known to be a number or a name.
std::string Shorten(std::string_view value);
// A message with no more than `max_bytes` (>= 3) of it, the last three of them "..." where it was cut, between
// characters of UTF-8.
std::string CutMessage(std::string_view message, std::size_t max_bytes);

}  // namespace permafrost
