#include "client/plan_view.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/format.h"
#include "client/table.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

using Policy = v1::GraphCachePolicy;
using Plan = v1::PlanGraphCacheResponse;
using Row = v1::GraphCachePlanRow;

// A server may be newer than this client, or name a schedule that is none.
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

// Training steps of the run.
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

}  // namespace permafrost::client
