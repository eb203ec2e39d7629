#include "client/terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::client {
namespace {

constexpr char kEraseLine[] = "\r\x1b[K";

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool IsDumb() {
  const char* term = std::getenv("TERM");
  return term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
}

}  // namespace

Terminal::Terminal(bool allow_color) {
  live_ = isatty(STDOUT_FILENO) != 0 && !IsDumb();
  color_ = live_ && allow_color && !IsSet("NO_COLOR");
  // Sets only the character set, so that numbers keep their decimal point in every locale.
  setlocale(LC_CTYPE, "");
  unicode_ = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
}

Terminal::~Terminal() { ClearLive(); }

RenderStyle Terminal::style() const {
  RenderStyle style{.color = color_, .unicode = unicode_};
  winsize size{};
  if (live_ && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  return style;
}

void Terminal::Write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void Terminal::Line(std::string_view line) {
  const std::string live = shown_;
  ClearLive();
  Write(absl::StrCat(AbslView(line), "\n"));
  if (!live.empty()) Live(live);
  // Flushes, so that the reader of a pipe sees each line at once.
  std::fflush(stdout);
}

void Terminal::Note(std::string_view line) {
  ClearLive();
  std::fflush(stdout);
  const std::string out = absl::StrCat(AbslView(line), "\n");
  std::fwrite(out.data(), 1, out.size(), stderr);
}

void Terminal::Live(std::string_view line) {
  if (!live_ || line == shown_) return;
  Write(absl::StrCat(kEraseLine, AbslView(line)));
  std::fflush(stdout);
  shown_ = line;
}

void Terminal::ClearLive() {
  if (shown_.empty()) return;
  Write(kEraseLine);
  std::fflush(stdout);
  shown_.clear();
}

bool Terminal::Flush() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

}  // namespace permafrost::client
