#include "base/text.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost {

std::size_t Utf8SequenceLength(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto tail = [&](std::size_t i, uint8_t low = 0x80, uint8_t high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    // The bounds of the second byte exclude overlong forms and surrogates.
    const bool second = tail(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF);
    return second && tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = tail(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF);
    return second && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

std::size_t FindInvalidUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  for (std::size_t at = 0; at < text.size();) {
    // Skips eight bytes of ASCII at once.
    if (uint64_t word = 0; text.size() - at >= sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & kHighBits) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const std::size_t length = Utf8SequenceLength(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return text.npos;
}

std::string Quote(std::string_view value) { return absl::StrCat("\"", Shorten(value), "\""); }

std::string Shorten(std::string_view value) {
  constexpr std::size_t kShown = 40;
  return absl::StrCat(absl::CHexEscape(AbslView(value.substr(0, kShown))), value.size() > kShown ? "..." : "");
}

std::string CutMessage(std::string_view message, std::size_t max_bytes) {
  if (message.size() <= max_bytes) return std::string(message);
  std::size_t end = max_bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(AbslView(message.substr(0, end)), "...");
}

}  // namespace permafrost
