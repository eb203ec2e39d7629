// Line charts as SVG, to be embedded in a page. The charts take their colours from the page's style.
// Threads: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace permafrost::client {

// Makes `text` safe within HTML or SVG: escapes special characters, and turns control characters into spaces.
std::string EscapeHtml(const std::string& text);

struct Series {
  std::string name;
  // Points in the order of rising x. A y that is not finite makes a gap in the line.
  std::vector<std::pair<double, double>> points;
  bool steps = false;  // each y holds until the next x
};

struct Chart {
  std::string title, x_name;
  std::vector<Series> series;
  bool from_zero = false;  // the y axis begins at 0
  bool counts = false;     // all values of y are whole numbers
};

// Returns about `wanted` round numbers within [low, high]. Both bounds must be finite, with low < high.
std::vector<double> TicksOf(double low, double high, int wanted);

// The most points that are drawn for one series. A longer series is cut into sections. In each section, the points
// with the smallest and the largest y are drawn.
inline constexpr size_t kMaxDrawnPoints = 800;

// Draws the chart. The lines have the CSS classes s0, s1, ... Returns an empty text if no series has a point.
std::string DrawChart(const Chart& chart);

}  // namespace permafrost::client
