#include "api/wire/wire_values.h"

#include <cstdint>

#include "base/text.h"

namespace permafrost::api {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = Utf8SequenceLength(text);
    out += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string Clip(std::string_view text, std::size_t max_bytes) {
  // ValidUtf8 never shortens the text, so bytes beyond max_bytes + 1 do not matter.
  std::string valid = ValidUtf8(text.substr(0, max_bytes + 1));
  if (valid.size() <= max_bytes && text.size() <= max_bytes) return valid;
  std::size_t end = max_bytes - 3;
  while (end > 0 && (static_cast<uint8_t>(valid[end]) & 0xC0) == 0x80) --end;
  valid.resize(end);
  return valid + "...";
}

}  // namespace permafrost::api
