#include "client/plan_view.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/string_view.h"
#include "client/format.h"
#include "client/style.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

using Policy = v1::GraphCachePolicy;
using Plan = v1::PlanGraphCacheResponse;
using Row = v1::GraphCachePlanRow;

// Returns the schedule of a row. A newer server may send an index that is out of range: the schedule is then empty.
const v1::BatchSchedule& ScheduleOf(const Row& row, const Plan& plan) {
  const bool known = row.schedule() >= 0 && row.schedule() < plan.schedules_size();
  return known ? plan.schedules(row.schedule()) : v1::BatchSchedule::default_instance();
}

std::string FreezePointText(const Plan& plan) {
  if (plan.freeze_at() == 0) return absl::StrCat("none: ", OneLine(plan.no_op_reason()));
  return absl::StrCat("after ", CountText(plan.freeze_at()), plan.freeze_at() == 1 ? " shape" : " shapes",
                      ", where shapes are exact");
}

std::string CostsText(const Plan& plan) {
  if (!plan.has_costs()) return absl::StrCat("not measured: ", OneLine(plan.no_costs_reason()));
  const v1::StepCosts& costs = plan.costs();
  std::string text = absl::StrFormat("a capture takes %.3g ms", 1e3 * costs.capture_seconds());
  if (costs.dynamic_capture_seconds() > 0)
    absl::StrAppendFormat(&text, ", one for every shape %.3g ms", 1e3 * costs.dynamic_capture_seconds());
  absl::StrAppend(&text, "; an executable keeps ", BytesText(costs.entry_bytes()), ", all share ",
                  BytesText(costs.shared_bytes()));
  return text;
}

// Returns the number of training steps of the run.
int64_t Steps(const Row& row, const Plan& plan) { return ScheduleOf(row, plan).batches(); }

}  // namespace

bool SaysTheSame(const Row& row, const Plan& plan) {
  const Row& first = plan.rows(0);
  return row.schedule() == first.schedule() && row.train_executables() == first.train_executables() &&
         row.captures() == first.captures() && row.replayed_steps() == first.replayed_steps() &&
         row.padding_rows() == first.padding_rows() && row.eager_steps() == first.eager_steps() &&
         row.policy().policy() == first.policy().policy();
}

std::string BatchScheduleText(const v1::BatchSchedule& schedule) {
  std::string text = absl::StrCat(schedule.batching(), ": ");
  if (schedule.max_nodes() > 0) absl::StrAppend(&text, "at most ", CountText(schedule.max_nodes()), " nodes, ");
  if (schedule.max_edges() > 0) absl::StrAppend(&text, "at most ", CountText(schedule.max_edges()), " edges, ");
  absl::StrAppend(&text, CountText(schedule.batches()), " batches", schedule.cut() ? " walked" : "", " in ",
                  CountText(schedule.epochs()), schedule.epochs() == 1 ? " epoch, " : " epochs, ");
  if (schedule.rungs() > 0) {
    absl::StrAppend(&text, "rounded up to ", CountText(schedule.rungs()), schedule.rungs() == 1 ? " rung" : " rungs",
                    " (", CountText(schedule.sampled_batches()), " sampled ones have ",
                    CountText(schedule.sampled_shapes()),
                    schedule.sampled_shapes() == 1 ? " shape)" : " different shapes)");
  } else {
    absl::StrAppend(&text, CountText(schedule.shapes()), schedule.shapes() == 1 ? " shape" : " different shapes");
  }
  if (schedule.epochs() > 1 && !schedule.estimated() && schedule.shapes() > 1)
    absl::StrAppend(&text, " (", CountText(schedule.first_epoch_shapes()), " in the first epoch)");
  absl::StrAppend(&text, "; largest ", CountText(schedule.ceiling().nodes()), " nodes, ",
                  CountText(schedule.ceiling().edges()), " edges");
  if (schedule.cut()) absl::StrAppend(&text, "; the schedule is longer than what was walked");
  return text;
}

std::string SharedShapesText(const v1::BatchSchedule& schedule) {
  if (schedule.rungs() > 0 || schedule.shapes() < 2 || schedule.shapes() >= schedule.batches()) return "";
  return absl::StrCat(CountText(schedule.batches()), " batches share ", CountText(schedule.shapes()),
                      " shapes (nodes, edges, graphs): an executable for each shape would be ",
                      CountText(schedule.shapes()), " of training, not ", CountText(schedule.batches()));
}

std::string CachePolicyText(const Policy& policy, Policy::Shapes shapes, int64_t freeze_at) {
  std::string text = EnumShortName(*Policy::Policy_descriptor(), policy.policy());
  if (policy.policy() != Policy::POLICY_FREEZE || shapes != Policy::SHAPES_EXACT) return text;
  absl::StrAppend(&text, freeze_at > 0 ? absl::StrCat(" at ", CountText(freeze_at)) : " never", ", ",
                  EnumShortName(*Policy::OnMiss_descriptor(), policy.on_miss()));
  return text;
}

std::string CacheShapesText(const Policy& policy, Policy::Shapes shapes, int64_t executables) {
  if (policy.policy() == Policy::POLICY_NEVER || policy.policy() == Policy::POLICY_CLEAR_PER_STEP) return kNothing;
  const std::string text = EnumShortName(*Policy::Shapes_descriptor(), shapes);
  if (shapes != Policy::SHAPES_LADDER) return text;
  return absl::StrCat(text, " of ", CountText(executables));
}

std::string PlanPolicyText(const Row& row, const Plan& plan) {
  return CachePolicyText(row.policy(), row.shapes(), plan.freeze_at());
}

std::string PlanShapesText(const Row& row) {
  return CacheShapesText(row.policy(), row.shapes(), row.train_executables());
}

std::string RenderPlan(const Plan& plan, const std::string& subject, const RenderStyle& style) {
  std::vector<Field> fields{{"plan", subject}};
  for (const v1::BatchSchedule& schedule : plan.schedules()) {
    fields.push_back({fields.size() == 1 ? "batches" : "", OneLine(BatchScheduleText(schedule))});
  }
  if (plan.schedules_size() > 0) {
    if (std::string shared = SharedShapesText(plan.schedules(0)); !shared.empty())
      fields.push_back({"", std::move(shared)});
  }
  fields.push_back({"freeze point", FreezePointText(plan)});
  if (!plan.no_dynamic_reason().empty())
    fields.push_back({"dynamic", {absl::StrCat("none: ", OneLine(plan.no_dynamic_reason())), Tone::kWarn}});
  fields.push_back({"costs", CostsText(plan)});
  const bool costs = plan.has_costs(), schedules = plan.schedules_size() > 1;
  std::vector<Column> columns{{""}, {"POLICY"}, {"SHAPES"}};
  if (schedules) columns.push_back({"BATCHING"});
  for (const char* name : {"EXECUTABLES", "CAPTURES", "EXACT HITS", "PADDED HITS", "ROWS ADDED"})
    columns.push_back({name, Align::kRight});
  if (costs) {
    for (const char* name : {"CACHE", "MS/STEP", "TRAINING"}) columns.push_back({name, Align::kRight});
  }
  std::vector<std::vector<Cell>> rows;
  for (int i = 0; i < plan.rows_size(); ++i) {
    const Row& row = plan.rows(i);
    const bool recommended = i == plan.recommended_row();
    if (i > 0 && !recommended && SaysTheSame(row, plan)) continue;
    const Tone tone = recommended ? Tone::kGood : Tone::kPlain;
    const int64_t steps = Steps(row, plan);
    std::vector<Cell> cells{
        {absl::StrCat(i == 0 ? "asked" : "", i == 0 && recommended ? ", " : "", recommended ? "best" : ""), tone},
        {PlanPolicyText(row, plan), tone},
        {PlanShapesText(row), tone}};
    if (schedules) cells.emplace_back(OneLine(ScheduleOf(row, plan).batching()), tone);
    cells.emplace_back(absl::StrCat(CountText(row.train_executables()), " + ", CountText(row.eval_executables())),
                       tone);
    cells.emplace_back(CountText(row.captures()), tone);
    const Tone hits = row.rejected_steps() > 0 ? Tone::kBad : tone;
    cells.emplace_back(ShareText(row.replayed_steps() - row.padded_steps(), steps), hits);
    cells.emplace_back(ShareText(row.padded_steps(), steps), hits);
    cells.emplace_back(ShareText(row.padding_rows(), row.rows()), tone);
    if (costs) {
      cells.emplace_back(BytesText(row.bytes()), tone);
      cells.emplace_back(absl::StrFormat("%.3g", 1e3 * row.step_seconds()), tone);
      cells.emplace_back(DurationText(absl::Seconds(row.train_seconds())), tone);
    }
    rows.push_back(std::move(cells));
  }
  return absl::StrCat(RenderFields(fields, style), "\n", RenderTable(columns, rows, style), "\n",
                      RenderFields({{"best", {OneLine(plan.recommendation()), Tone::kGood}}}, style));
}

namespace {

constexpr double kWidth = 860, kLeft = 330, kRight = 150, kTop = 56, kLine = 22;
constexpr char kStepColor[] = "#2a6f97", kCaptureColor[] = "#c2571a", kBestColor[] = "#1a7f37";

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(AbslView(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// One bar: the lengths of its parts, and the text after it.
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
  std::vector<std::pair<int, Bar>> bars;  // the index of a row in the plan, and its bar
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

namespace {

using Census = v1::CensusGraphCacheResponse;

std::string LoweringText(const v1::LoweringCensus& lowering) {
  return EnumShortName(*v1::ModelSpec::Lowering_descriptor(), lowering.lowering());
}

std::vector<Cell> OperatorCells(const std::string& mode, const v1::OperatorCensus& op) {
  return {{mode},
          {op.name().empty() ? "all" : OneLine(op.name())},
          {CountText(op.shape_entries())},
          {CountText(op.epoch_entries())},
          {CountText(op.run_entries())}};
}

std::string OperatorTable(const v1::LoweringCensus& lowering, const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  const auto add = [&rows](const char* mode, const v1::StepCensus& step) {
    if (step.operators() == 0) return;
    for (const v1::OperatorCensus& op : step.by_operator()) rows.push_back(OperatorCells(mode, op));
    rows.push_back(OperatorCells(mode, step.all()));
  };
  add("train", lowering.train());
  add("eval", lowering.eval());
  return RenderTable(
      {{"STEP"}, {"OPERATOR"}, {"A SHAPE", Align::kRight}, {"AN EPOCH", Align::kRight}, {"THE RUN", Align::kRight}},
      rows, style);
}

// Returns the cells that describe a row's policy. If these cells equal the first row's cells, the row is not shown
// again.
std::vector<std::string> PolicyTexts(const v1::GraphCacheCensusRow& row, const Census& census) {
  return {CachePolicyText(row.policy(), row.shapes(), census.freeze_at()),
          CacheShapesText(row.policy(), row.shapes(), row.train_shapes()),
          absl::StrCat(CountText(row.train_shapes()), " + ", CountText(row.eval_shapes())),
          CountText(row.shape_entries()),
          CountText(row.epoch_entries()),
          CountText(row.run_entries()),
          CountText(row.compiled())};
}

std::string PolicyTable(const v1::LoweringCensus& lowering, const Census& census, const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::GraphCacheCensusRow& row : lowering.rows()) {
    std::vector<std::string> texts = PolicyTexts(row, census);
    if (!rows.empty() && texts == PolicyTexts(lowering.rows(0), census)) continue;
    std::vector<Cell> cells{{rows.empty() ? "asked" : ""}};
    for (std::string& text : texts) cells.emplace_back(std::move(text));
    rows.push_back(std::move(cells));
  }
  return RenderTable({{""},
                      {"POLICY"},
                      {"SHAPES"},
                      {"ON DEVICE", Align::kRight},
                      {"A SHAPE", Align::kRight},
                      {"AN EPOCH", Align::kRight},
                      {"THE RUN", Align::kRight},
                      {"COMPILED", Align::kRight}},
                     rows, style);
}

}  // namespace

std::string RenderCensus(const Census& census, const std::string& subject, const RenderStyle& style) {
  std::vector<Field> fields{{"census", absl::StrCat(subject, ", on MPS of libtorch ", OneLine(census.torch_release()))},
                            {"batches", OneLine(BatchScheduleText(census.schedule()))}};
  if (census.has_measured_entries())
    fields.push_back(
        {"measured", absl::StrCat(CountText(census.measured_entries()), " entries, of the job that ran last")});
  std::string text = RenderFields(fields, style);
  for (int i = 0; i < census.lowerings_size(); ++i) {
    const v1::LoweringCensus& lowering = census.lowerings(i);
    std::vector<Field> about{
        {"lowering", absl::StrCat(LoweringText(lowering), i == 0 ? ", the job's" : "")},
        {"operators", absl::StrCat(CountText(lowering.train().operators()), " in a training step, ",
                                   CountText(lowering.eval().operators()), " in an evaluation step")}};
    if (lowering.unknown_operators_size() > 0) {
      about.push_back({"unknown", {OneLine(absl::StrJoin(lowering.unknown_operators(), ", ")), Tone::kWarn}});
    }
    absl::StrAppend(&text, "\n", RenderFields(about, style), "\n", OperatorTable(lowering, style), "\n",
                    PolicyTable(lowering, census, style));
  }
  return text;
}

}  // namespace permafrost::client
