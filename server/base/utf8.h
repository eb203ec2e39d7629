// Valid UTF-8 sequences (RFC 3629, section 4). Threads: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace permafrost {

// Bytes of the valid sequence at the beginning of `text`; 0 if there is none. `text` must not be empty.
std::size_t Utf8SequenceLength(std::string_view text);
// Place of the first byte that is no part of a valid sequence; npos where all are.
std::size_t FindInvalidUtf8(std::string_view text);

}  // namespace permafrost
