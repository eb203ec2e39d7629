#include "client/sampling_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/format.h"
#include "client/style.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

using ReadPlan = v1::PlanDatasetResponse;
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
    default:  // a newer server may send other values
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

std::vector<Cell> ReadingCells(const Reading& reading, const ReadPlan& plan) {
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

std::string RenderDatasetPlan(const ReadPlan& plan, const std::string& dataset, const RenderStyle& style) {
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

namespace {

// The most rows of edges or of walks that are shown.
constexpr int64_t kMostRows = 20;

std::string More(int64_t more, const char* one, const char* many) {
  return absl::StrCat("... and ", CountText(more), " more ", more == 1 ? one : many,
                      "; all of them with --output json\n");
}

// Returns the source's name for a row if the graph has names, or else the row's number.
std::string RowText(const v1::SampleDatasetResponse& sample, uint32_t row) {
  const auto name = std::ranges::lower_bound(sample.names(), row, {}, &v1::SampleDatasetResponse::Name::row);
  return name != sample.names().end() && name->row() == row ? OneLine(name->name()) : absl::StrCat(row);
}

std::string RenderHops(const v1::SampleDatasetResponse& sample, const RenderStyle& style) {
  std::vector<int64_t> edges(static_cast<size_t>(sample.nodes_of_hop_size()));
  for (const auto& edge : sample.edges()) {
    // A newer server may send other values.
    if (edge.hop() >= 0 && edge.hop() < sample.nodes_of_hop_size()) ++edges[static_cast<size_t>(edge.hop())];
  }
  std::vector<std::vector<Cell>> rows;
  rows.reserve(edges.size());
  for (int hop = 0; hop < sample.nodes_of_hop_size(); ++hop) {
    rows.push_back({absl::StrCat(hop), CountText(sample.nodes_of_hop(hop)),
                    hop == 0 ? std::string(kNothing) : CountText(edges[static_cast<size_t>(hop)])});
  }
  return RenderTable({{"HOP", Align::kRight}, {"NEW NODES", Align::kRight}, {"EDGES", Align::kRight}}, rows, style);
}

std::string RenderEdges(const v1::SampleDatasetResponse& sample, const RenderStyle& style) {
  if (sample.edges().empty()) return "";
  const bool weighted = std::ranges::any_of(sample.edges(), [](const auto& edge) { return edge.weight() != 1; });
  std::vector<Column> columns{{"HOP", Align::kRight}, {"SOURCE", Align::kRight}, {"TARGET", Align::kRight}};
  if (weighted) columns.push_back({"WEIGHT", Align::kRight});
  const bool timed = std::ranges::any_of(sample.edges(), [](const auto& edge) { return edge.timestamp() != 0; });
  if (timed) columns.push_back({"TIME", Align::kRight});
  // In a sample that is not disjoint, every edge has seed 0. A disjoint sample whose only seed is row 0 cannot be
  // told apart from it, and gets no SEED column either.
  const bool disjoint = std::ranges::any_of(sample.edges(), [](const auto& edge) { return edge.seed() != 0; });
  if (disjoint) columns.push_back({"SEED", Align::kRight});
  std::vector<std::vector<Cell>> rows;
  const int shown = static_cast<int>(std::min<int64_t>(kMostRows, sample.edges_size()));
  for (int i = 0; i < shown; ++i) {
    const auto& edge = sample.edges(i);
    rows.push_back({absl::StrCat(edge.hop()), RowText(sample, edge.source()), RowText(sample, edge.target())});
    if (weighted) rows.back().emplace_back(absl::StrFormat("%.6g", edge.weight()));
    if (timed) rows.back().emplace_back(absl::StrCat(edge.timestamp()));
    if (disjoint) rows.back().emplace_back(RowText(sample, edge.seed()));
  }
  std::string out = absl::StrCat("\n", RenderTable(columns, rows, style));
  if (shown < sample.edges_size()) absl::StrAppend(&out, More(sample.edges_size() - shown, "edge", "edges"));
  return out;
}

// Returns one walk in a line of the terminal's width. If the walk does not fit, the line ends with the number of
// missing nodes.
std::string WalkLine(const v1::SampleDatasetResponse& sample, int64_t begin, int64_t length, const RenderStyle& style) {
  const std::string arrow = style.unicode ? " → " : " > ";
  const auto node = [&](int64_t i) { return RowText(sample, sample.walks(static_cast<int>(begin + i))); };
  const int width = style.width - 1;
  std::string line = node(0);
  // `cut` is the longest beginning of the walk that leaves room for the number of missing nodes.
  std::string cut = line;
  for (int64_t i = 1; i < length; ++i) {
    const std::string rest = absl::StrCat(arrow, "... ", length - i, " more");
    if (DisplayWidth(line) + DisplayWidth(rest) <= width) cut = line + rest;
    line += arrow + node(i);
    if (DisplayWidth(line) > width) return cut + "\n";
  }
  return line + "\n";
}

std::string RenderWalks(const v1::SampleDatasetResponse& sample, const RenderStyle& style) {
  const int64_t length = sample.walk_length();
  const int64_t walks = sample.walks_size() / length;
  std::string out;
  for (int64_t i = 0; i < std::min(walks, kMostRows); ++i) out += WalkLine(sample, i * length, length, style);
  if (walks > kMostRows) out += More(walks - kMostRows, "walk", "walks");
  return out;
}

}  // namespace

std::string RenderSample(const v1::SampleDatasetResponse& sample, const RenderStyle& style) {
  const std::string took = absl::StrCat(" in ", DurationText(absl::Seconds(sample.seconds())), "\n");
  if (sample.walk_length() > 0) {
    const int64_t walks = sample.walks_size() / sample.walk_length();
    return absl::StrCat(CountText(walks), walks == 1 ? " walk of " : " walks of ", CountText(sample.walk_length()),
                        " nodes", took, "\n", RenderWalks(sample, style));
  }
  return absl::StrCat(CountText(sample.edges_size()), " edges around ", CountText(sample.nodes_size()),
                      sample.nodes_size() == 1 ? " node" : " nodes", took, "\n", RenderHops(sample, style),
                      RenderEdges(sample, style));
}

}  // namespace permafrost::client
