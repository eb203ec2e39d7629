#include "base/quote.h"

#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost {

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
