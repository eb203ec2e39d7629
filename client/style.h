// Decides how text may look where it goes.
#pragma once

#include <string>
#include <string_view>

namespace permafrost::client {

struct RenderStyle {
  // Columns of the terminal.
  int width = 80;
  // ANSI colours.
  bool color = false;
  // Block characters in bars; otherwise ASCII.
  bool unicode = false;
};

enum class Tone { kPlain, kBold, kDim, kGood, kWarn, kBad };

// `text` in the tone's colour where the style has colours.
std::string Paint(std::string_view text, Tone tone, const RenderStyle& style);

}  // namespace permafrost::client
