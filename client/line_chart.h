// Line charts as SVG that stands in a page and takes its colours from the page's style.
// Threads: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace permafrost::client {

// `text` within HTML or SVG: what has a meaning there is escaped, control characters become spaces.
std::string EscapeHtml(const std::string& text);

struct Series {
  std::string name;
  // By rising x. A y that is not finite is a gap.
  std::vector<std::pair<double, double>> points;
  bool steps = false;  // y holds until the next x
};

struct Chart {
  std::string title, x_name;
  std::vector<Series> series;
  bool from_zero = false;  // the axis of y begins at 0
  bool counts = false;     // y has whole numbers only
};

// Round numbers that lie within [low, high], about `wanted` of them. Both finite, low < high.
std::vector<double> TicksOf(double low, double high, int wanted);

// At most this many points of a series are drawn. If there are more, the smallest and the largest of each stretch are.
inline constexpr size_t kMaxDrawnPoints = 800;

// Its lines have the classes s0, s1, ...; empty where no series has a point.
std::string DrawChart(const Chart& chart);

}  // namespace permafrost::client
