// Standard output: permanent lines and, on a terminal, one live line below them that is redrawn in place.
// Threads: one.
// Invariant: if stdout is not a terminal, newline is the only control character that is written.
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
  // Removes the live line.
  ~Terminal();

  // Returns whether a live line can be drawn.
  bool live() const { return live_; }
  // Returns the style with the terminal's present width.
  RenderStyle style() const;

  // Writes the bytes as they are.
  void Write(std::string_view text);
  // Prints a permanent line above the live one.
  void Line(std::string_view line);
  // Prints a permanent, uncoloured line on stderr: a remark beside the result.
  void Note(std::string_view line);
  // Replaces the live line. Does nothing if live() is false.
  void Live(std::string_view line);
  void ClearLive();
  // Writes the buffered output. Returns false if some of it could not be written, for example on a full disk; errno
  // has the reason.
  bool Flush();

 private:
  bool live_ = false;
  bool color_ = false;
  bool unicode_ = false;
  std::string shown_;
};

}  // namespace permafrost::client
