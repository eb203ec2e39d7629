#include "data/import/tu_edges.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/sort/edge_sorter.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
namespace {

constexpr std::string_view kAsFirstRead = "as when it was read first";
constexpr size_t kEdgesOfPiece = size_t{1} << 14;

// An edge as it is sorted: by graph, then by row.
FullEdge ToRecord(const TuEdges::Edge& edge) {
  return {.key = MakeEdgeKey(edge.graph, 0),
          .row = edge.row,
          .timestamp = static_cast<int64_t>(MakeEdgeKey(edge.source, edge.target))};
}

TuEdges::Edge FromRecord(const FullEdge& record) {
  const auto ends = static_cast<EdgeKey>(record.timestamp);
  return {.graph = MajorOf(record.key), .source = MajorOf(ends), .target = MinorOf(ends), .row = record.row};
}

}  // namespace

absl::Status TuEdges::Begin() {
  read_ = 0;
  graph_ = 0;
  if (!count_) largest_node_ = descents_ = last_source_ = 0;
  piece_.clear();
  at_ = 0;
  if (sorted()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(rows_, CsvRows::Open(file_, monitor_));
  return absl::OkStatus();
}

absl::StatusOr<TuEdges::Next> TuEdges::Read(Edge& edge) {
  if (sorted()) return ReadSorted(edge);
  std::string_view line;
  if (count_) {
    if (read_ == static_cast<uint64_t>(*count_)) return End();
    PF_ASSIGN_OR_RETURN(line, rows_->NextDue(*count_, kAsFirstRead));
  } else {
    PF_ASSIGN_OR_RETURN(const bool more, rows_->Next(line));
    if (!more) return End();
    if (FindsZero(line)) {
      rows_->Rewind();
      return Next::kAnew;
    }
  }
  auto parsed = Parse(line);
  if (!parsed.ok()) {
    PF_ASSIGN_OR_RETURN(const bool anew, ZeroFollows());
    return anew ? absl::StatusOr<Next>(Next::kAnew) : parsed.status();
  }
  edge = *parsed;
  edge.row = read_++;
  if (!count_) Watch(edge);
  if (edge.graph >= std::exchange(graph_, edge.graph)) return Next::kEdge;
  if (count_) return absl::InvalidArgumentError(absl::StrCat(file_.name, ": changed while it was read"));
  rows_->Rewind();
  // The file is begun anew once more where a 0 turns up.
  for (bool done = false; !done;) {
    PF_ASSIGN_OR_RETURN(done, Sort());
  }
  return Next::kAnew;
}

void TuEdges::Watch(const Edge& edge) {
  const int64_t first = sizes_.FirstNodeOf(edge.graph);
  largest_node_ = std::max(largest_node_, first + std::max(edge.source, edge.target) + 1);
  descents_ += first + edge.source < last_source_;
  last_source_ = first + edge.source;
}

absl::StatusOr<TuEdges::Next> TuEdges::End() {
  if (count_) {
    PF_RETURN_IF_ERROR(rows_->ExpectEnd(*count_, kAsFirstRead));
  }
  count_ = static_cast<int64_t>(read_);
  return Next::kEnd;
}

absl::StatusOr<TuEdges::Next> TuEdges::ReadSorted(Edge& edge) {
  if (at_ == piece_.size()) {
    const uint64_t left = static_cast<uint64_t>(*count_) - read_;
    if (left == 0) return Next::kEnd;
    PF_RETURN_IF_ERROR(monitor_.CheckStop());
    piece_.resize(std::min<uint64_t>(left, kEdgesOfPiece));
    at_ = 0;
    PF_RETURN_IF_ERROR(sorted_->Read(read_ * sizeof(Edge), std::as_writable_bytes(std::span(piece_))));
  }
  edge = piece_[at_++];
  ++read_;
  return Next::kEdge;
}

absl::StatusOr<bool> TuEdges::Sort() {
  PF_ASSIGN_OR_RETURN(rows_, CsvRows::Open(file_, monitor_));
  EdgeSorter<FullEdge> sorter({.directory = directory_,
                               .memory_bytes = memory_bytes_,
                               .add_inverses = false,
                               .threads = monitor_.limits().threads},
                              monitor_.stop());
  std::vector<FullEdge> records;
  uint64_t count = 0;
  largest_node_ = descents_ = last_source_ = 0;
  for (;;) {
    std::string_view line;
    PF_ASSIGN_OR_RETURN(const bool more, rows_->Next(line));
    if (more && FindsZero(line)) {
      rows_->Rewind();
      return false;
    }
    if (more) {
      auto edge = Parse(line);
      if (!edge.ok()) {
        PF_ASSIGN_OR_RETURN(const bool anew, ZeroFollows());
        return anew ? absl::StatusOr<bool>(false) : edge.status();
      }
      edge->row = count++;
      Watch(*edge);
      records.push_back(ToRecord(*edge));
    }
    if (!more || records.size() == kEdgesOfPiece) {
      PF_RETURN_IF_ERROR(sorter.Add(records));
      records.clear();
    }
    if (!more) break;
  }
  PF_RETURN_IF_ERROR(sorter.Finish());
  PF_ASSIGN_OR_RETURN(NamelessFile sorted, NamelessFile::Create(directory_));
  std::vector<Edge> edges;
  for (;;) {
    PF_ASSIGN_OR_RETURN(const std::span<const FullEdge> next, sorter.Next());
    if (next.empty()) break;
    edges.clear();
    for (const FullEdge& record : next) edges.push_back(FromRecord(record));
    PF_RETURN_IF_ERROR(sorted.Append(std::as_bytes(std::span(edges)), monitor_.stop()));
  }
  count_ = static_cast<int64_t>(count);
  sorted_ = std::make_unique<NamelessFile>(std::move(sorted));
  // The second reading that the progress counts on is not needed.
  PF_RETURN_IF_ERROR(monitor_.Advance(file_.name, file_.bytes));
  return true;
}

bool TuEdges::FindsZero(std::string_view line) {
  if (first_node_ == 0) return false;
  Cells cells(line);
  for (std::string_view cell; cells.Next(cell);) {
    if (cell == "0") first_node_ = 0;
  }
  return first_node_ == 0;
}

absl::StatusOr<bool> TuEdges::ZeroFollows() {
  if (count_) return false;
  while (first_node_ != 0) {
    std::string_view line;
    const auto more = rows_->Next(line);
    if (IsTransient(more.status()) || absl::IsCancelled(more.status())) return more.status();
    if (!more.ok() || !*more) return false;
    if (FindsZero(line)) {
      rows_->Rewind();
      return true;
    }
  }
  return false;
}

absl::StatusOr<TuEdges::Edge> TuEdges::Parse(std::string_view line) const {
  Cells cells(line);
  std::string_view source_cell, target_cell, extra;
  cells.Next(source_cell);
  if (!cells.Next(target_cell) || cells.Next(extra)) return rows_->WidthError(CountCells(line), 2, "source, target");
  PF_ASSIGN_OR_RETURN(const int64_t source, ParseNode("source", source_cell));
  PF_ASSIGN_OR_RETURN(const int64_t target, ParseNode("target", target_cell));
  const int64_t graph = sizes_.GraphOf(source, /*guess=*/graph_);
  const int64_t first = sizes_.FirstNodeOf(graph), nodes = sizes_.NodesOf(graph);
  if (target < first || target >= first + nodes) {
    return rows_->Error("target", absl::StrCat(target + first_node_, " is of another graph than source ",
                                               source + first_node_, ", of graph ", graph + 1, " with the nodes ",
                                               first + first_node_, "..", first + nodes - 1 + first_node_));
  }
  return Edge{.graph = static_cast<uint32_t>(graph),
              .source = static_cast<uint32_t>(source - first),
              .target = static_cast<uint32_t>(target - first)};
}

absl::StatusOr<int64_t> TuEdges::ParseNode(std::string_view field, std::string_view cell) const {
  int64_t id = 0;
  const IntegerCell parsed = ParseInteger(cell, id);
  if (parsed != IntegerCell::kOk) {
    return rows_->Error(field, absl::StrCat(Quote(cell), parsed == IntegerCell::kOutOfRange ? " is outside 64 bits"
                                                                                            : " is not an integer"));
  }
  const int64_t nodes = sizes_.num_nodes();
  if (id < first_node_ || id >= nodes + first_node_) {
    return rows_->Error(field, nodes == 0
                                   ? absl::StrCat(id, " cannot be: the set has no nodes")
                                   : absl::StrCat(id, " is outside ", first_node_, "..", nodes - 1 + first_node_));
  }
  return id - first_node_;
}

}  // namespace permafrost::data
