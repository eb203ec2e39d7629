// Takes text from outside: tells whether it is UTF-8, and shows it in messages.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace permafrost {

// Valid UTF-8 sequences (RFC 3629, section 4). Threads: pure functions.

// Bytes of the valid sequence at the beginning of `text`; 0 if there is none. `text` must not be empty.
std::size_t Utf8SequenceLength(std::string_view text);
// Place of the first byte that is no part of a valid sequence; npos where all are.
std::size_t FindInvalidUtf8(std::string_view text);

// Values as messages show them: short, on one line, whatever they hold.
// Threads: pure functions.

// Puts the value in double quotes, escapes it, and cuts it if it is long.
std::string Quote(std::string_view value);
// The same without quotes, for what is known to be a number or a name.
std::string Shorten(std::string_view value);
// A message with no more than `max_bytes` (>= 3) of it, the last three of them "..." where it was cut, between
// characters of UTF-8.
std::string CutMessage(std::string_view message, std::size_t max_bytes);

}  // namespace permafrost
