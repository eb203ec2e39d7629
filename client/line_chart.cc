#include "client/line_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/format.h"

namespace permafrost::client {
namespace {

constexpr double kChartWidth = 640, kChartHeight = 270, kPlotLeft = 64, kPlotRight = 16, kPlotTop = 48,
                 kPlotBottom = 40;
// A line with more points than this has no dots, because they would run together.
constexpr size_t kMaxDots = 60;

using Points = std::vector<std::pair<double, double>>;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void Take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // Widens a range of a single value, so that the value lies in the middle.
  void Widen() {
    if (low < high) return;
    const double by = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= by;
    high += by;
  }
  // Adds a margin above and, with `below`, also below, so that lines do not touch the frame.
  void Pad(bool below) {
    const double by = (high - low) * 0.05;
    if (below) low -= by;
    high += by;
  }
};

Points Thinned(const Points& points) {
  if (points.size() <= kMaxDrawnPoints) return points;
  const size_t stretches = kMaxDrawnPoints / 2;
  Points thinned;
  for (size_t s = 0; s < stretches; ++s) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * s / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (s + 1) / stretches);
    auto [least, most] =
        std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (least > most) std::swap(least, most);
    thinned.push_back(*least);
    if (most != least) thinned.push_back(*most);
  }
  return thinned;
}

// Returns the text of a tick, with the precision that distinguishes neighbouring ticks.
std::string TickText(double value, const std::vector<double>& ticks) {
  const double apart = ticks.size() < 2 ? 1 : ticks[1] - ticks[0];
  if (std::abs(value) < apart * 1e-6) value = 0;
  if (std::max(std::abs(ticks.front()), std::abs(ticks.back())) >= 10'000) return value == 0 ? "0" : ShortText(value);
  const int digits = apart >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(apart) - 1e-9));
  return digits > 6 ? absl::StrFormat("%.1e", value) : absl::StrFormat("%.*f", digits, value);
}

bool IsWhole(double value) { return std::abs(value - std::round(value)) < 1e-9; }

// With `whole`, returns only ticks that are whole numbers.
std::vector<double> AxisTicks(const Range& range, int wanted, bool whole) {
  std::vector<double> ticks = TicksOf(range.low, range.high, wanted);
  if (whole) std::erase_if(ticks, [](double tick) { return !IsWhole(tick); });
  return ticks;
}

class Plot {
 public:
  Plot(Range x, Range y, bool whole_x, bool whole_y) : x_(x), y_(y), whole_x_(whole_x), whole_y_(whole_y) {}

  double X(double value) const {
    return kPlotLeft + (value - x_.low) / (x_.high - x_.low) * (kChartWidth - kPlotLeft - kPlotRight);
  }
  double Y(double value) const {
    return kChartHeight - kPlotBottom - (value - y_.low) / (y_.high - y_.low) * (kChartHeight - kPlotTop - kPlotBottom);
  }

  std::string Axes(const std::string& x_name) const {
    std::string out;
    const std::vector<double> ys = AxisTicks(y_, 5, whole_y_), xs = AxisTicks(x_, 8, whole_x_);
    for (const double y : ys) {
      absl::StrAppendFormat(&out, "<line class=\"grid\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>", kPlotLeft,
                            kChartWidth - kPlotRight, Y(y), Y(y));
      absl::StrAppendFormat(&out, "<text class=\"tick\" x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                            kPlotLeft - 8, Y(y) + 4, TickText(y, ys));
    }
    for (const double x : xs) {
      absl::StrAppendFormat(&out, "<text class=\"tick\" x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", X(x),
                            kChartHeight - kPlotBottom + 17, TickText(x, xs));
    }
    absl::StrAppendFormat(&out, "<line class=\"axis\" x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\"/>\n", kPlotLeft,
                          kChartWidth - kPlotRight, kChartHeight - kPlotBottom, kChartHeight - kPlotBottom);
    absl::StrAppendFormat(&out, "<text class=\"tick\" x=\"%g\" y=\"%g\" text-anchor=\"middle\">%s</text>\n",
                          (kPlotLeft + kChartWidth - kPlotRight) / 2, kChartHeight - 6, EscapeHtml(x_name));
    return out;
  }

  std::string Line(const Series& series, size_t index) const {
    const Points points = Thinned(series.points);
    std::string path;
    bool pen_down = false;
    double last_y = 0;
    for (const auto& [x, y] : points) {
      if (!std::isfinite(y)) {
        pen_down = false;
        continue;
      }
      if (pen_down && series.steps) absl::StrAppendFormat(&path, "L%.1f %.1f", X(x), Y(last_y));
      absl::StrAppendFormat(&path, "%s%.1f %.1f", pen_down ? "L" : "M", X(x), Y(y));
      pen_down = true;
      last_y = y;
    }
    std::string out = absl::StrFormat("<path class=\"line s%d\" d=\"%s\"/>\n", index, path);
    if (points.size() > kMaxDots) return out;
    for (const auto& [x, y] : points) {
      if (!std::isfinite(y)) continue;
      absl::StrAppendFormat(
          &out, "<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"><title>%s, %s: %s</title></circle>\n",
          index, X(x), Y(y), EscapeHtml(series.name), ShortText(x), MetricText(y));
    }
    return out;
  }

 private:
  const Range x_, y_;
  const bool whole_x_, whole_y_;
};

std::string LegendOf(const std::vector<Series>& series) {
  std::string out;
  double x = kPlotLeft;
  for (size_t i = 0; i < series.size(); ++i) {
    absl::StrAppendFormat(&out, "<rect class=\"key s%d\" x=\"%g\" y=\"29\" width=\"14\" height=\"3\"/>", i, x);
    absl::StrAppendFormat(&out, "<text class=\"tick\" x=\"%g\" y=\"34\">%s</text>\n", x + 19,
                          EscapeHtml(series[i].name));
    x += 19 + 7.0 * DisplayWidth(series[i].name) + 18;
  }
  return out;
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  return absl::StrReplaceAll(OneLine(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::vector<double> TicksOf(double low, double high, int wanted) {
  const double rough = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double apart = 10 * power;
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= rough * (1 - 1e-9)) {
      apart = nice * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / apart - 1e-9);
  // Counts the ticks instead of summing their distance, because rounding errors of a sum would accumulate.
  for (double n = first; n * apart <= high + apart * 1e-9 && ticks.size() < 100; ++n) ticks.push_back(n * apart);
  return ticks;
}

std::string DrawChart(const Chart& chart) {
  Range x, y;
  bool whole_x = true;
  for (const Series& series : chart.series) {
    for (const auto& [px, py] : series.points) {
      if (!std::isfinite(py)) continue;
      x.Take(px);
      whole_x = whole_x && IsWhole(px);
      y.Take(py);
    }
  }
  if (y.empty()) return "";
  if (chart.from_zero) y.Take(0);
  x.Widen();
  y.Widen();
  y.Pad(/*below=*/!chart.from_zero);
  const Plot plot(x, y, whole_x, chart.counts);
  std::string out = absl::StrFormat("<svg class=\"chart\" role=\"img\" viewBox=\"0 0 %g %g\"><title>%s</title>\n",
                                    kChartWidth, kChartHeight, EscapeHtml(chart.title));
  absl::StrAppendFormat(&out, "<text class=\"title\" x=\"%g\" y=\"14\">%s</text>\n", kPlotLeft,
                        EscapeHtml(chart.title));
  if (chart.series.size() > 1) out += LegendOf(chart.series);
  out += plot.Axes(chart.x_name);
  for (size_t i = 0; i < chart.series.size(); ++i) out += plot.Line(chart.series[i], i);
  return out + "</svg>\n";
}

}  // namespace permafrost::client
