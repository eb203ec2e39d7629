#include "client/census_view.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/format.h"
#include "client/plan_view.h"
#include "client/table.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
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

// The cells of a row in the table; two policies that come to the same are told once.
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
