#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/string_view.h"
#include "client/format.h"
#include "client/plan_view.h"

namespace permafrost::client {
namespace {

constexpr double kWidth = 860, kLeft = 330, kRight = 150, kTop = 56, kLine = 22;
constexpr char kStepColor[] = "#2a6f97", kCaptureColor[] = "#c2571a", kBestColor[] = "#1a7f37";

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(AbslView(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// One bar: its parts, and what stands after it.
struct Bar {
  double steps = 0, captures = 0;
  std::string value;
};

Bar BarOf(const v1::GraphCachePlanRow& row, const v1::PlanGraphCacheResponse& plan) {
  if (!plan.has_costs()) {
    const double rows = static_cast<double>(std::max<int64_t>(1, row.rows()));
    return {static_cast<double>(row.padding_rows()) / rows, 0, ShareText(row.padding_rows(), row.rows())};
  }
  const bool known = row.schedule() >= 0 && row.schedule() < plan.schedules_size();
  const double steps = row.step_seconds() * static_cast<double>(known ? plan.schedules(row.schedule()).batches() : 0);
  return {steps, std::max(0.0, row.train_seconds() - steps),
          absl::StrCat(DurationText(absl::Seconds(row.train_seconds())), ", ", BytesText(row.bytes()))};
}

}  // namespace

std::string DrawPlan(const v1::PlanGraphCacheResponse& plan, const std::string& subject) {
  const bool costs = plan.has_costs();
  std::vector<std::pair<int, Bar>> bars;  // with the index of its row
  double most = 1e-12;
  for (int i = 0; i < plan.rows_size(); ++i) {
    if (i > 0 && i != plan.recommended_row() && SaysTheSame(plan.rows(i), plan)) continue;
    const Bar& bar = bars.emplace_back(i, BarOf(plan.rows(i), plan)).second;
    most = std::max(most, bar.steps + bar.captures);
  }
  const double height = kTop + kLine * static_cast<double>(bars.size()) + 34;
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
      kWidth, height);
  absl::StrAppendFormat(&out, "<text x=\"12\" y=\"20\" font-size=\"14\">%s: %s</text>\n", Escaped(subject),
                        costs ? "predicted time of all training steps, and of the captures"
                              : "rows added by padding, part of the batches' own");
  const double scale = (kWidth - kLeft - kRight) / most;
  double y = kTop - kLine;
  for (const auto& [i, bar] : bars) {
    const v1::GraphCachePlanRow& row = plan.rows(i);
    y += kLine;
    const bool best = i == plan.recommended_row();
    std::string label = absl::StrCat(i == 0 ? "asked: " : "", PlanPolicyText(row, plan));
    if (const std::string shapes = PlanShapesText(row); shapes != kNothing) absl::StrAppend(&label, ", ", shapes);
    if (plan.schedules_size() > 1 && row.schedule() >= 0 && row.schedule() < plan.schedules_size())
      absl::StrAppend(&label, ", ", plan.schedules(row.schedule()).batching());
    absl::StrAppendFormat(&out, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\"%s>%s</text>\n", kLeft - 10, y + 4,
                          best ? absl::StrFormat(" font-weight=\"bold\" fill=\"%s\"", kBestColor) : "", Escaped(label));
    const auto part = [&](double x, double width, const char* color) {
      absl::StrAppendFormat(&out, "<rect x=\"%.1f\" y=\"%g\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>\n", x, y - 7,
                            width, color);
    };
    part(kLeft, bar.steps * scale, best ? kBestColor : kStepColor);
    if (bar.captures > 0) part(kLeft + bar.steps * scale, bar.captures * scale, kCaptureColor);
    absl::StrAppendFormat(&out, "<text x=\"%.1f\" y=\"%g\" fill=\"#444\">%s</text>\n",
                          kLeft + (bar.steps + bar.captures) * scale + 8, y + 4, Escaped(bar.value));
  }
  const std::string_view best = plan.recommendation();
  absl::StrAppendFormat(&out, "<text x=\"12\" y=\"%g\" fill=\"#666\">%s</text>\n</svg>\n", height - 12,
                        Escaped(absl::StrCat("best: ", AbslView(best.substr(0, best.find(':'))))));
  return out;
}

}  // namespace permafrost::client
