#include "api/text.h"

#include <cstdint>

namespace permafrost::api {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the valid sequence at the beginning of `text`; 0 if there is none. Source: RFC 3629, section 4.
std::size_t SequenceLength(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto tail = [&](std::size_t i, uint8_t low = 0x80, uint8_t high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    // No overlong forms, no surrogates.
    const bool second = tail(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF);
    return second && tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = tail(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF);
    return second && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = SequenceLength(text);
    out += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string Clip(std::string_view text, std::size_t max_bytes) {
  // Replacement only lengthens, so bytes past max_bytes cannot matter.
  std::string valid = ValidUtf8(text.substr(0, max_bytes + 1));
  if (valid.size() <= max_bytes && text.size() <= max_bytes) return valid;
  std::size_t end = max_bytes - 3;
  while (end > 0 && (static_cast<uint8_t>(valid[end]) & 0xC0) == 0x80) --end;
  valid.resize(end);
  return valid + "...";
}

}  // namespace permafrost::api
