#include "program/program.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/string_view.h"
#include "base/text.h"

namespace permafrost::program {
namespace {

struct Frame {
  std::string path, line, function, code;
};

// Parses a stack in which each frame has two lines: ` File "PATH", line N, in FUNCTION`, and then the text of the
// source line.
std::vector<Frame> FramesOf(absl::string_view trace) {
  std::vector<Frame> frames;
  for (absl::string_view line : absl::StrSplit(trace, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "File \"")) {
      const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits("\", line ", 1));
      if (parts.size() != 2) continue;
      const std::vector<std::string> rest = absl::StrSplit(parts[1], absl::MaxSplits(", in ", 1));
      frames.push_back({parts[0], rest[0], rest.size() == 2 ? rest[1] : "", ""});
    } else if (!line.empty() && !frames.empty() && frames.back().code.empty()) {
      frames.back().code = std::string(line);
    }
  }
  return frames;
}

// Returns the text on one line. Control characters are escaped, and the result is cut after 120 bytes.
std::string Line(absl::string_view text) { return CutMessage(absl::CHexEscape(text), 120); }

absl::string_view FileOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

bool IsLibrary(const Frame& frame) {
  return absl::StrContains(frame.path, "site-packages/") || absl::StartsWith(frame.path, "torch/");
}

// Returns the last module of a list such as
// "L__self__,,__main__.Net;L__self__convs.0,convs.0,torch_geometric.nn.conv.gin_conv.GINEConv".
std::string ModuleOf(absl::string_view stack) {
  const std::vector<std::string> modules = absl::StrSplit(stack, ';');
  const std::vector<std::string> parts = absl::StrSplit(modules.back(), ',');
  if (parts.size() != 3 || parts[1].empty() || absl::StartsWith(parts[1], "_empty_nn_module")) return "";
  const std::vector<std::string> type = absl::StrSplit(parts[2], '.');
  return absl::StrCat("in ", parts[1], " (", type.back(), ")");
}

}  // namespace

std::string SourceLine(std::string_view stack_trace, std::string_view nn_module_stack) {
  const std::vector<Frame> frames = FramesOf(AbslView(stack_trace));
  const Frame* best = frames.empty() ? nullptr : &frames.back();
  for (const Frame& frame : frames)
    if (!IsLibrary(frame)) best = &frame;
  const std::string module = ModuleOf(AbslView(nn_module_stack));
  if (best == nullptr) return Line(module);
  std::string line = Line(absl::StrCat(FileOf(best->path), ":", best->line));
  if (!best->function.empty()) absl::StrAppend(&line, " in ", Line(best->function));
  if (!best->code.empty()) absl::StrAppend(&line, ": ", Line(best->code));
  if (!module.empty()) absl::StrAppend(&line, ", ", Line(module));
  return line;
}

std::string JoinedLines(std::span<const std::string> lines) {
  constexpr size_t kMostPlaces = 8;
  std::vector<std::string> places;
  for (const std::string& line : lines) {
    std::string place = line.substr(0, line.find(" in "));
    if (std::ranges::find(places, place) == places.end()) places.push_back(std::move(place));
  }
  if (places.size() < 2) return lines.empty() ? "" : lines[0];
  const size_t told = std::min(places.size() - 1, kMostPlaces), left = places.size() - 1 - told;
  const std::span<const std::string> others = std::span<const std::string>(places).subspan(1, told);
  return absl::StrCat(lines[0], "; with ", absl::StrJoin(others, ", "),
                      left == 0 ? "" : absl::StrCat(" and ", left, " more"));
}

std::string Describe(const Node& node) {
  const auto line = [](const std::string& text) { return CutMessage(absl::CHexEscape(text), 120); };
  return absl::StrCat("node ", line(node.name), " (", line(node.target), node.source.empty() ? "" : "; ", node.source,
                      ")");
}

}  // namespace permafrost::program
