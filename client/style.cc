#include "client/style.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::client {
namespace {

std::string_view Ansi(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kBold:
      return "1";
    case Tone::kDim:
      return "2";
    case Tone::kGood:
      return "32";
    case Tone::kWarn:
      return "33";
    case Tone::kBad:
      return "31";
  }
  return "";
}

}  // namespace

std::string Paint(std::string_view text, Tone tone, const RenderStyle& style) {
  if (!style.color || tone == Tone::kPlain || text.empty()) return std::string(text);
  return absl::StrCat("\x1b[", AbslView(Ansi(tone)), "m", AbslView(text), "\x1b[0m");
}

}  // namespace permafrost::client
