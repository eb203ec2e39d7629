#include "data/import/renumbering.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/sort/edge_sorter.h"

namespace permafrost::data {

Renumbering Renumbering::FromOrder(std::span<const NodeId> old_of_new) {
  Renumbering out;
  out.new_of_old_.resize(old_of_new.size());
  for (size_t row = 0; row < old_of_new.size(); ++row) out.new_of_old_[old_of_new[row]] = static_cast<NodeId>(row);
  return out;
}

NodeId Renumbering::Old(NodeId row) const {
  if (none()) return row;
  return static_cast<NodeId>(std::ranges::find(new_of_old_, row) - new_of_old_.begin());
}

std::vector<NodeId> Renumbering::OldOfNew() const {
  std::vector<NodeId> out(new_of_old_.size());
  for (size_t old = 0; old < new_of_old_.size(); ++old) out[new_of_old_[old]] = static_cast<NodeId>(old);
  return out;
}

absl::Status WriteSourceRows(const Renumbering& renumbering, GraphWriter& writer, GraphSummary& summary) {
  if (renumbering.none()) return absl::OkStatus();
  summary.named = true;
  PF_RETURN_IF_ERROR(writer.Begin(SectionKind::kNodeNumbers, ElementType::kUint64));
  constexpr size_t kPiece = size_t{1} << 16;
  const std::vector<NodeId> old_of_new = renumbering.OldOfNew();
  std::vector<uint64_t> numbers;
  for (size_t at = 0; at < old_of_new.size(); at += kPiece) {
    const auto piece = std::span(old_of_new).subspan(at, std::min(kPiece, old_of_new.size() - at));
    numbers.assign(piece.begin(), piece.end());
    PF_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(numbers))));
  }
  return absl::OkStatus();
}

namespace {

constexpr int kMostPasses = 5;
constexpr uint32_t kCommunitySizes[] = {4096, 64};

std::vector<NodeId> Rows(size_t nodes) {
  std::vector<NodeId> rows(nodes);
  std::iota(rows.begin(), rows.end(), NodeId{0});
  return rows;
}

// One level of label propagation, within the communities of the level above.
class LabelPropagation {
 public:
  // `above` holds a label for each node; it is empty if all nodes are in one community. `most` is the most nodes of a
  // community.
  LabelPropagation(const std::vector<NodeId>& above, size_t nodes, uint32_t most)
      : above_(above), most_(most), labels_(Rows(nodes)), sizes_(nodes, 1) {}

  absl::StatusOr<std::vector<NodeId>> Run(const EdgeLists& edges) && {
    for (int pass = 0; pass < kMostPasses; ++pass) {
      moved_ = 0;
      PF_RETURN_IF_ERROR(edges([this](NodeId node, std::span<const NodeId> sources) { Visit(node, sources); }));
      constexpr uint64_t kFewMoved = 100;
      if (moved_ * kFewMoved < labels_.size()) break;
    }
    return std::move(labels_);
  }

 private:
  void Visit(NodeId node, std::span<const NodeId> sources) {
    found_.clear();
    for (const NodeId source : sources.first(std::min(sources.size(), kMostAsked))) {
      if (source != node && (above_.empty() || above_[source] == above_[node])) found_.push_back(labels_[source]);
    }
    std::sort(found_.begin(), found_.end());
    const NodeId own = labels_[node];
    NodeId best = own;
    size_t best_count =
        static_cast<size_t>(std::ranges::upper_bound(found_, own) - std::ranges::lower_bound(found_, own));
    for (size_t begin = 0, end = 0; begin < found_.size(); begin = end) {
      const NodeId label = found_[begin];
      while (end < found_.size() && found_[end] == label) ++end;
      if (end - begin > best_count && sizes_[label] < most_) {
        best = label;
        best_count = end - begin;
      }
    }
    if (best == own) return;
    --sizes_[own];
    ++sizes_[best];
    labels_[node] = best;
    ++moved_;
  }

  const std::vector<NodeId>& above_;
  const uint32_t most_;
  std::vector<NodeId> labels_;
  std::vector<uint32_t> sizes_;
  std::vector<NodeId> found_;
  uint64_t moved_ = 0;
};

}  // namespace

std::vector<NodeId> OrderByDegree(const OutDegrees& degrees) {
  std::vector<NodeId> order = Rows(degrees.size());
  std::ranges::sort(order,
                    [&](NodeId a, NodeId b) { return degrees[a] != degrees[b] ? degrees[a] > degrees[b] : a < b; });
  return order;
}

absl::StatusOr<std::vector<NodeId>> OrderByCommunity(const OutDegrees& degrees, const EdgeLists& edges) {
  const std::vector<NodeId> none;
  PF_ASSIGN_OR_RETURN(const std::vector<NodeId> large,
                      LabelPropagation(none, degrees.size(), kCommunitySizes[0]).Run(edges));
  PF_ASSIGN_OR_RETURN(const std::vector<NodeId> small,
                      LabelPropagation(large, degrees.size(), kCommunitySizes[1]).Run(edges));
  std::vector<NodeId> order = Rows(degrees.size());
  std::ranges::sort(
      order, {}, [&](NodeId node) { return std::tuple(large[node], small[node], UINT32_MAX - degrees[node], node); });
  return order;
}

namespace {

// Appends all edges to the spool, and counts the out-degree of each node.
template <class Record>
absl::Status Fill(EdgeSpool<Record>& spool, EdgeSorter<Record>& sorted, bool coalesce, OutDegrees& degrees) {
  std::optional<EdgeKey> last;
  for (;;) {
    PF_ASSIGN_OR_RETURN(const std::span<const Record> edges, sorted.Next());
    if (edges.empty()) return absl::OkStatus();
    for (const Record& edge : edges) {
      if (coalesce && last == edge.key) continue;
      last = edge.key;
      uint32_t& degree = degrees[MinorOf(edge.key)];
      degree += degree != std::numeric_limits<uint32_t>::max();
    }
    PF_RETURN_IF_ERROR(spool.Append(edges));
  }
}

// Visits the lists of in-neighbours as EdgeLists requires.
template <class Record>
absl::Status VisitLists(const EdgeSpool<Record>& spool,
                        const std::function<void(NodeId, std::span<const NodeId>)>& visit) {
  std::vector<NodeId> sources;
  NodeId node = 0;
  PF_RETURN_IF_ERROR(spool.ForEach([&](std::span<const Record> edges) {
    for (const Record& edge : edges) {
      if (MajorOf(edge.key) != node) {
        if (!sources.empty()) visit(node, sources);
        sources.clear();
        node = MajorOf(edge.key);
      }
      if (sources.size() < kMostAsked) sources.push_back(MinorOf(edge.key));
    }
    return absl::OkStatus();
  }));
  if (!sources.empty()) visit(node, sources);
  return absl::OkStatus();
}

}  // namespace

template <class Record>
absl::StatusOr<std::unique_ptr<EdgeSorter<Record>>> RenumberEdges(std::unique_ptr<EdgeSorter<Record>> sorted,
                                                                  const RenumberEdgesOptions& options,
                                                                  const EdgeSorterOptions& sorting,
                                                                  ImportMonitor& monitor, Renumbering& renumbering) {
  PF_ASSIGN_OR_RETURN(auto spool, EdgeSpool<Record>::Create(sorting.directory, monitor.stop()));
  {
    OutDegrees degrees(options.nodes);
    PF_RETURN_IF_ERROR(Fill(spool, *sorted, options.coalesce, degrees));
    sorted.reset();
    PF_RETURN_IF_ERROR(monitor.Advance("ordering nodes", 0));
    std::vector<NodeId> order;
    if (options.order == NodeOrder::kDegree) {
      order = OrderByDegree(degrees);
    } else {
      PF_ASSIGN_OR_RETURN(
          order, OrderByCommunity(degrees, [&spool](const auto& visit) { return VisitLists<Record>(spool, visit); }));
    }
    OutDegrees().swap(degrees);
    renumbering = Renumbering::FromOrder(order);
  }
  auto renumbered = std::make_unique<EdgeSorter<Record>>(sorting, monitor.stop());
  PF_RETURN_IF_ERROR(spool.ForEach([&](std::span<Record> edges) {
    for (Record& edge : edges) {
      edge.key = MakeEdgeKey(renumbering.New(MajorOf(edge.key)), renumbering.New(MinorOf(edge.key)));
    }
    return renumbered->Add(edges);
  }));
  PF_RETURN_IF_ERROR(monitor.Advance("sorting", 0));
  PF_RETURN_IF_ERROR(renumbered->Finish());
  return renumbered;
}

template absl::StatusOr<std::unique_ptr<EdgeSorter<PlainEdge>>> RenumberEdges(std::unique_ptr<EdgeSorter<PlainEdge>>,
                                                                              const RenumberEdgesOptions&,
                                                                              const EdgeSorterOptions&, ImportMonitor&,
                                                                              Renumbering&);
template absl::StatusOr<std::unique_ptr<EdgeSorter<WeightedEdge>>> RenumberEdges(
    std::unique_ptr<EdgeSorter<WeightedEdge>>, const RenumberEdgesOptions&, const EdgeSorterOptions&, ImportMonitor&,
    Renumbering&);
template absl::StatusOr<std::unique_ptr<EdgeSorter<FullEdge>>> RenumberEdges(std::unique_ptr<EdgeSorter<FullEdge>>,
                                                                             const RenumberEdgesOptions&,
                                                                             const EdgeSorterOptions&, ImportMonitor&,
                                                                             Renumbering&);

namespace {

constexpr uint64_t kSpoolPieceBytes = uint64_t{1} << 20;

}  // namespace

absl::StatusOr<RowSpool> RowSpool::Create(RowSpoolOptions options, const Renumbering& renumbering,
                                          std::stop_token stop) {
  PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(options.directory));
  return RowSpool(std::move(options), renumbering, std::move(stop), std::move(file));
}

RowSpool::RowSpool(RowSpoolOptions options, const Renumbering& renumbering, std::stop_token stop, NamelessFile file)
    : options_(std::move(options)), renumbering_(&renumbering), stop_(std::move(stop)), file_(std::move(file)) {
  if (renumbering.none()) return;
  const uint64_t half = options_.memory_bytes / 2;
  rows_of_part_ = std::clamp<uint64_t>(half / options_.row_bytes, 1, std::max<uint64_t>(options_.rows, 1));
  parts_.resize((options_.rows + rows_of_part_ - 1) / rows_of_part_);
  buffer_bytes_ = std::min(kSpoolPieceBytes, half / std::max<size_t>(parts_.size(), 1));
}

absl::Status RowSpool::Append(std::span<const std::byte> rows) {
  if (parts_.empty()) return file_.Append(rows, stop_);
  for (; !rows.empty(); rows = rows.subspan(options_.row_bytes)) {
    const NodeId row = renumbering_->New(static_cast<NodeId>(appended_++));
    const size_t part = row / rows_of_part_;
    std::vector<std::byte>& buffer = parts_[part].buffer;
    if (buffer.capacity() == 0) buffer.reserve(std::max(buffer_bytes_, record_bytes()));
    const auto number = std::as_bytes(std::span(&row, 1));
    buffer.insert(buffer.end(), number.begin(), number.end());
    buffer.insert(buffer.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(options_.row_bytes));
    if (buffer.size() + record_bytes() > buffer_bytes_) PF_RETURN_IF_ERROR(Flush(part));
  }
  return absl::OkStatus();
}

absl::Status RowSpool::Flush(size_t part) {
  Part& p = parts_[part];
  const uint64_t begin = part * rows_of_part_ * record_bytes();
  PF_RETURN_IF_ERROR(file_.Write(begin + p.written, p.buffer, stop_));
  p.written += p.buffer.size();
  p.buffer.clear();
  return absl::OkStatus();
}

absl::Status RowSpool::Drain(const std::function<absl::Status(std::span<const std::byte> rows)>& take) {
  std::vector<std::byte> rows;
  if (parts_.empty()) {
    const uint64_t most = std::max<uint64_t>(1, kSpoolPieceBytes / options_.row_bytes) * options_.row_bytes;
    for (uint64_t at = 0; at < file_.size(); at += rows.size()) {
      PF_RETURN_IF_ERROR(CheckStop(stop_));
      rows.resize(std::min(most, file_.size() - at));
      PF_RETURN_IF_ERROR(file_.Read(at, rows));
      PF_RETURN_IF_ERROR(take(rows));
    }
    return absl::OkStatus();
  }
  for (size_t part = 0; part < parts_.size(); ++part) PF_RETURN_IF_ERROR(Flush(part));
  for (Part& part : parts_) std::vector<std::byte>().swap(part.buffer);
  for (size_t part = 0; part < parts_.size(); ++part) {
    PF_RETURN_IF_ERROR(DrainPart(part, rows));
    PF_RETURN_IF_ERROR(take(rows));
  }
  return absl::OkStatus();
}

absl::Status RowSpool::DrainPart(size_t part, std::vector<std::byte>& rows) {
  const uint64_t first = part * rows_of_part_, row_bytes = options_.row_bytes;
  rows.resize(std::min(rows_of_part_, options_.rows - first) * row_bytes);
  if (parts_[part].written != rows.size() / row_bytes * record_bytes()) {
    return absl::InternalError("the import lost rows on their way to their places");
  }
  const uint64_t most = std::max<uint64_t>(1, kSpoolPieceBytes / record_bytes()) * record_bytes();
  std::vector<std::byte> records;
  for (uint64_t at = 0; at < parts_[part].written; at += records.size()) {
    PF_RETURN_IF_ERROR(CheckStop(stop_));
    records.resize(std::min(most, parts_[part].written - at));
    PF_RETURN_IF_ERROR(file_.Read(first * record_bytes() + at, records));
    for (uint64_t r = 0; r < records.size(); r += record_bytes()) {
      NodeId row;
      std::memcpy(&row, records.data() + r, sizeof(row));
      std::memcpy(rows.data() + (row - first) * row_bytes, records.data() + r + sizeof(row), row_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
