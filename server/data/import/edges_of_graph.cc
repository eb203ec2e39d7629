#include "data/import/edges_of_graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/quote.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/sort/edge_records.h"
#include "data/source/cell_number.h"

namespace permafrost::data {

void EdgesOfGraph::BeginGraph(int64_t graph, int64_t num_nodes) {
  graph_ = graph;
  num_nodes_ = num_nodes;
  file_source_.clear();
  file_target_.clear();
}

absl::Status EdgesOfGraph::Parse(const CsvRows& rows, std::string_view line) {
  Cells cells(line);
  std::string_view source_cell, target_cell, extra;
  cells.Next(source_cell);
  if (!cells.Next(target_cell) || cells.Next(extra)) return rows.WidthError(CountCells(line), 2, "source, target");
  uint32_t source = 0, target = 0;
  PF_RETURN_IF_ERROR(ParseEnd(rows, "source", source_cell, source));
  PF_RETURN_IF_ERROR(ParseEnd(rows, "target", target_cell, target));
  Add(source, target);
  return absl::OkStatus();
}

void EdgesOfGraph::Add(uint32_t source, uint32_t target) {
  file_source_.push_back(source);
  file_target_.push_back(target);
  if (add_inverses_) {
    file_source_.push_back(target);
    file_target_.push_back(source);
  }
}

absl::Status EdgesOfGraph::ParseEnd(const CsvRows& rows, std::string_view field, std::string_view cell,
                                    uint32_t& end) const {
  int64_t value = 0;
  const IntegerCell parsed = ParseInteger(cell, value);
  if (parsed == IntegerCell::kNotInteger) return rows.Error(field, absl::StrCat(Quote(cell), " is not an integer"));
  if (parsed == IntegerCell::kOutOfRange || value < 0 || value >= num_nodes_) {
    return rows.Error(field, num_nodes_ == 0
                                 ? absl::StrCat(Shorten(cell), " cannot be: graph ", graph_, " has no nodes")
                                 : absl::StrCat(Shorten(cell), " is outside 0..", num_nodes_ - 1, " (graph ", graph_,
                                                " has ", num_nodes_, num_nodes_ == 1 ? " node)" : " nodes)"));
  }
  end = static_cast<uint32_t>(value);
  return absl::OkStatus();
}

void EdgesOfGraph::SortEnds() {
  keys_.clear();
  for (size_t i = 0; i < file_target_.size(); ++i) keys_.push_back(MakeEdgeKey(file_target_[i], file_source_[i]));
  std::sort(keys_.begin(), keys_.end());
}

size_t EdgesOfGraph::CountEqual() {
  SortEnds();
  size_t equal = 0;
  for (size_t i = 1; i < keys_.size(); ++i) equal += keys_[i] == keys_[i - 1];
  return equal;
}

bool EdgesOfGraph::HasBothDirections() {
  SortEnds();
  inverses_.clear();
  for (const uint64_t key : keys_) inverses_.push_back(SwapEnds(key));
  std::sort(inverses_.begin(), inverses_.end());
  return keys_ == inverses_;
}

void EdgesOfGraph::Sort() {
  // The index in the low half makes keys distinct, and so the sort a stable one.
  keys_.clear();
  for (size_t i = 0; i < file_target_.size(); ++i) keys_.push_back(uint64_t{file_target_[i]} << 32 | i);
  std::sort(keys_.begin(), keys_.end());
  source_.clear();
  target_.clear();
  file_row_.clear();
  for (const uint64_t key : keys_) {
    const auto i = static_cast<uint32_t>(key);
    source_.push_back(file_source_[i]);
    target_.push_back(file_target_[i]);
    file_row_.push_back(add_inverses_ ? i / 2 : i);
  }
}

}  // namespace permafrost::data
