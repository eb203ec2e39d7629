#include "client/dataset_plan_view.h"

#include <cmath>
#include <cstdint>
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

using DatasetPlan = v1::PlanDatasetResponse;
using Reading = v1::PlannedReading;

std::string CaseText(Reading::Case what) {
  switch (what) {
    case Reading::CASE_AS_ASKED:
      return "as asked";
    case Reading::CASE_TWICE_THE_MEMORY:
      return "twice the memory";
    case Reading::CASE_BFLOAT16:
      return "as bfloat16";
    case Reading::CASE_BFLOAT16_TWICE_THE_MEMORY:
      return "both";
    default:  // a server may be newer than this client
      return EnumShortName(*Reading::Case_descriptor(), what);
  }
}

std::string WholeBytes(double bytes) { return BytesText(std::llround(bytes)); }

std::string PartText(double part, double whole) { return ShareText(std::llround(part), std::llround(whole)); }

std::string DiskText(const v1::DiskRates& disk) {
  std::string text = absl::StrFormat("%.3g us a request", 1e6 * disk.seconds_per_read());
  if (disk.seconds_per_byte() > 0) absl::StrAppend(&text, " and ", WholeBytes(1 / disk.seconds_per_byte()), "/s");
  absl::StrAppend(&text, " at ", disk.depth(), disk.depth() == 1 ? " read" : " reads", " at once, ",
                  WholeBytes(disk.sequential_bytes_per_second()), "/s in sequence (", OneLine(disk.how()), ")");
  return text;
}

std::vector<Cell> ReadingCells(const Reading& reading, const DatasetPlan& plan) {
  return {{CaseText(reading.what())},
          {BytesText(reading.memory_bytes())},
          {BytesText(reading.row_bytes())},
          {absl::StrFormat("%.3g", reading.pages_per_row())},
          {ShareText(reading.held_rows(), plan.num_nodes())},
          {PartText(reading.hit_rate() * plan.rows_per_epoch(), plan.rows_per_epoch())},
          {ShortText(reading.reads())},
          {WholeBytes(reading.bytes())},
          {reading.bytes() > 0 ? PartText(reading.missed_row_bytes(), reading.bytes()) : kNothing},
          {DurationText(absl::Seconds(reading.seconds()))},
          {DurationText(absl::Seconds(reading.fill_seconds()))}};
}

}  // namespace

std::string RenderDatasetPlan(const DatasetPlan& plan, const std::string& dataset, const RenderStyle& style) {
  std::vector<Field> fields{{"plan", absl::StrCat("an epoch of ", CountText(plan.num_batches()), " batches over ",
                                                  CountText(plan.num_train_nodes()), " of ",
                                                  CountText(plan.num_nodes()), " nodes of ", dataset)}};
  if (plan.sampled_batches() < plan.num_batches()) {
    fields.push_back(
        {"sampled",
         {absl::StrCat(CountText(plan.sampled_batches()), " of the batches; sums of an epoch are scaled up from them"),
          Tone::kWarn}});
  }
  fields.push_back({"rows", absl::StrCat(ShortText(plan.mean_rows()), " a batch, ",
                                         ShortText(static_cast<double>(plan.largest_rows())), " in the largest; ",
                                         ShortText(plan.rows_per_epoch()), " an epoch; ",
                                         CountText(plan.distinct_rows()), " different ones")});
  std::string edges = absl::StrCat(BytesText(plan.edge_bytes()), " of memory beside the rows");
  if (plan.edge_feature_bytes() > 0) {
    absl::StrAppend(&edges, ", and ", BytesText(plan.edge_feature_bytes()), " where a model reads their features");
  }
  fields.push_back({"edges", edges});
  fields.push_back({"disk", DiskText(plan.disk())});

  std::vector<Column> columns{{""}};
  for (const char* name :
       {"MEMORY", "ROW", "PAGES", "HELD", "HITS", "READS", "READ", "OF IT ROWS", "AN EPOCH", "ONCE"}) {
    columns.push_back({name, Align::kRight});
  }
  std::vector<std::vector<Cell>> rows;
  for (const Reading& reading : plan.readings()) rows.push_back(ReadingCells(reading, plan));
  std::string out = absl::StrCat(RenderFields(fields, style), "\n", RenderTable(columns, rows, style));
  if (plan.readings().empty()) return out;

  const Reading& asked = plan.readings(0);
  std::string fits = absl::StrCat("all rows are held by ", BytesText(asked.most_memory_bytes()));
  for (const Reading& reading : plan.readings()) {
    if (reading.what() == Reading::CASE_BFLOAT16) {
      absl::StrAppend(&fits, ", as bfloat16 by ", BytesText(reading.most_memory_bytes()));
    }
  }
  std::vector<Field> notes{{"memory", std::move(fits)}};
  if (asked.bytes() > 0) {
    notes.push_back({"order", absl::StrCat("an epoch takes ", DurationText(absl::Seconds(asked.packed_seconds())),
                                           " at least, however the nodes are ordered")});
  }
  return absl::StrCat(out, "\n", RenderFields(notes, style));
}

}  // namespace permafrost::client
