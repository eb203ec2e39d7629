// Handles text from outside: checks that it is UTF-8, and formats it for messages.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace permafrost {

// Valid UTF-8 sequences (RFC 3629, section 4).

// Returns the length in bytes of the valid sequence at the beginning of `text`, or 0 if there is none. `text` must
// not be empty.
std::size_t Utf8SequenceLength(std::string_view text);
// Returns the offset of the first byte that is not part of a valid sequence, or npos if the whole text is valid.
std::size_t FindInvalidUtf8(std::string_view text);

// Formats any value for a message, as a short text on one line.

// Escapes the value, cuts it if it is long, and puts it in double quotes.
std::string Quote(std::string_view value);
// Does the same as Quote, but adds no quotes. Use it for text that is known to be a number or a name.
std::string Shorten(std::string_view value);
// Returns at most `max_bytes` (at least 3) of the message. If it was cut, it ends in "...". The cut is between two
// UTF-8 characters.
std::string CutMessage(std::string_view message, std::size_t max_bytes);

}  // namespace permafrost
