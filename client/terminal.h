// Standard output: permanent lines, and on a terminal one live line below them that is redrawn in place.
// Threads: one.
// Invariant: where stdout is not a terminal, not a single control character but newline is written.
#pragma once

#include <string>
#include <string_view>

#include "client/style.h"

namespace permafrost::client {

class Terminal {
 public:
  // `allow_color` is false for --no-color. NO_COLOR and TERM=dumb turn colours off too.
  explicit Terminal(bool allow_color);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  // Leaves no live line behind.
  ~Terminal();

  // Returns whether a live line can be drawn.
  bool live() const { return live_; }
  // Returns the style with the terminal's present width.
  RenderStyle style() const;

  // Bytes as they are.
  void Write(std::string_view text);
  // A permanent line above the live one.
  void Line(std::string_view line);
  // A permanent line on stderr: a remark beside the result. Uncoloured.
  void Note(std::string_view line);
  // Replaces the live line; nothing where there can be none.
  void Live(std::string_view line);
  void ClearLive();
  // False when something could not be written (a full disk, say), with the reason in errno.
  bool Flush();

 private:
  bool live_ = false;
  bool color_ = false;
  bool unicode_ = false;
  std::string shown_;
};

}  // namespace permafrost::client
