#include "data/import/adjacency_writer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/sort/nameless_file.h"

namespace permafrost::data {
namespace {

struct AdjacencySections {
  SectionKind offsets, neighbors, weights, timestamps, edge_ids;
};
constexpr AdjacencySections kInSections = {SectionKind::kInOffsets, SectionKind::kInNeighbors, SectionKind::kInWeights,
                                           SectionKind::kInTimestamps, SectionKind::kInEdgeIds};
constexpr AdjacencySections kOutSections = {SectionKind::kOutOffsets, SectionKind::kOutNeighbors,
                                            SectionKind::kOutWeights, SectionKind::kOutTimestamps,
                                            SectionKind::kOutEdgeIds};

// The parts of kept edges as columns, one batch of the sorter at a time.
struct Columns {
  std::vector<NodeId> neighbors;
  std::vector<float> weights;
  std::vector<int64_t> timestamps;
  std::vector<uint64_t> edge_ids;
  void clear() {
    neighbors.clear();
    weights.clear();
    timestamps.clear();
    edge_ids.clear();
  }
};

template <class Record>
class AdjacencyWriter {
 public:
  AdjacencyWriter(const AdjacencyShape& shape, const std::filesystem::path& directory, ImportMonitor& monitor,
                  GraphWriter& writer, EdgeSorter<Record>* transposed)
      : shape_(shape),
        writer_(writer),
        transposed_(transposed),
        weights_(directory, monitor.stop()),
        timestamps_(directory, monitor.stop()),
        edge_ids_(directory, monitor.stop()),
        offsets_(shape.nodes + 1),
        is_neighbor_(shape.nodes) {}

  absl::StatusOr<AdjacencyCounts> Write(EdgeSorter<Record>& sorted, const AdjacencySections& sections) {
    PF_RETURN_IF_ERROR(writer_.Begin(sections.neighbors, ElementType::kUint32));
    for (;;) {
      PF_ASSIGN_OR_RETURN(const std::span<const Record> edges, sorted.Next());
      if (edges.empty()) break;
      if (shape_.coalesce) {
        PF_RETURN_IF_ERROR(Coalesce(edges));
        PF_RETURN_IF_ERROR(Keep(kept_));
      } else {
        PF_RETURN_IF_ERROR(Keep(edges));
      }
    }
    if (pending_) {
      PF_RETURN_IF_ERROR(CheckWeight(*pending_));
      PF_RETURN_IF_ERROR(Keep(std::span<const Record>(&*pending_, 1)));
    }
    CountDegrees();
    PF_RETURN_IF_ERROR(writer_.Write(sections.offsets, ElementType::kUint64, std::span<const uint64_t>(offsets_)));
    if (shape_.weights) PF_RETURN_IF_ERROR(weights_.MoveTo(writer_, sections.weights, ElementType::kFloat32));
    if (shape_.timestamps) PF_RETURN_IF_ERROR(timestamps_.MoveTo(writer_, sections.timestamps, ElementType::kInt64));
    if (shape_.edge_ids) PF_RETURN_IF_ERROR(edge_ids_.MoveTo(writer_, sections.edge_ids, ElementType::kUint64));
    return counts_;
  }

 private:
  absl::Status CheckWeight(const Record& edge) const {
    if constexpr (Record::kHasWeight) {
      if (!std::isfinite(edge.weight)) {
        const auto source_row = [this](NodeId row) {
          return shape_.renumbering == nullptr ? row : shape_.renumbering->Old(row);
        };
        return absl::InvalidArgumentError(
            absl::StrCat("weight: those of the edges between nodes ", source_row(MajorOf(edge.key)), " and ",
                         source_row(MinorOf(edge.key)), " add up to no finite number; import without coalesce"));
      }
    }
    return absl::OkStatus();
  }

  // Into kept_: one edge of each key; the last waits in pending_ for those of its key that the next batch may hold.
  absl::Status Coalesce(std::span<const Record> edges) {
    kept_.clear();
    for (const Record& edge : edges) {
      if (!pending_ || pending_->key != edge.key) {
        if (pending_) {
          PF_RETURN_IF_ERROR(CheckWeight(*pending_));
          kept_.push_back(*pending_);
        }
        pending_ = edge;
        continue;
      }
      ++counts_.duplicates;
      if constexpr (Record::kHasWeight) pending_->weight += edge.weight;
      if constexpr (Record::kHasAll) pending_->timestamp = std::max(pending_->timestamp, edge.timestamp);
    }
    return absl::OkStatus();
  }

  absl::Status Keep(std::span<const Record> edges) {
    columns_.clear();
    columns_.neighbors.reserve(edges.size());
    for (const Record& edge : edges) {
      const NodeId major = MajorOf(edge.key), minor = MinorOf(edge.key);
      columns_.neighbors.push_back(minor);
      ++offsets_[uint64_t{major} + 1];
      counts_.self_loops += major == minor;
      counts_.equal += last_kept_ == edge.key;
      last_kept_ = edge.key;
    }
    if (transposed_ != nullptr) {
      swapped_.assign(edges.begin(), edges.end());
      for (Record& edge : swapped_) {
        is_neighbor_[MinorOf(edge.key)] = true;
        edge.key = SwapEnds(edge.key);
      }
      PF_RETURN_IF_ERROR(transposed_->Add(swapped_));
    } else {
      for (const NodeId neighbor : columns_.neighbors) is_neighbor_[neighbor] = true;
    }
    if constexpr (Record::kHasWeight) {
      if (shape_.weights) {
        for (const Record& edge : edges) columns_.weights.push_back(edge.weight);
        PF_RETURN_IF_ERROR(weights_.Append(std::span<const float>(columns_.weights)));
      }
    }
    if constexpr (Record::kHasAll) {
      for (const Record& edge : edges) {
        if (shape_.timestamps) columns_.timestamps.push_back(edge.timestamp);
        if (shape_.edge_ids) columns_.edge_ids.push_back(edge.row);
      }
      PF_RETURN_IF_ERROR(timestamps_.Append(std::span<const int64_t>(columns_.timestamps)));
      PF_RETURN_IF_ERROR(edge_ids_.Append(std::span<const uint64_t>(columns_.edge_ids)));
    }
    counts_.edges += edges.size();
    return writer_.Append(std::as_bytes(std::span(columns_.neighbors)));
  }

  // offsets_ from counts to sums.
  void CountDegrees() {
    for (uint64_t node = 0; node < shape_.nodes; ++node) {
      const uint64_t degree = offsets_[node + 1];
      counts_.max_degree = std::max(counts_.max_degree, degree);
      counts_.isolated_nodes += degree == 0 && !is_neighbor_[node];
      offsets_[node + 1] += offsets_[node];
    }
  }

  const AdjacencyShape& shape_;
  GraphWriter& writer_;
  EdgeSorter<Record>* const transposed_;
  WaitingColumn weights_, timestamps_, edge_ids_;
  std::vector<uint64_t> offsets_;
  std::vector<bool> is_neighbor_;
  std::vector<Record> kept_, swapped_;
  std::optional<Record> pending_;
  std::optional<EdgeKey> last_kept_;
  Columns columns_;
  AdjacencyCounts counts_;
};

}  // namespace

template <class Record>
absl::StatusOr<AdjacencyCounts> WriteAdjacency(EdgeSorter<Record>& sorted, const AdjacencyShape& shape,
                                               Direction direction, const std::filesystem::path& directory,
                                               ImportMonitor& monitor, GraphWriter& writer,
                                               EdgeSorter<Record>* transposed) {
  return AdjacencyWriter<Record>(shape, directory, monitor, writer, transposed)
      .Write(sorted, direction == Direction::kIn ? kInSections : kOutSections);
}

template absl::StatusOr<AdjacencyCounts> WriteAdjacency(EdgeSorter<PlainEdge>&, const AdjacencyShape&, Direction,
                                                        const std::filesystem::path&, ImportMonitor&, GraphWriter&,
                                                        EdgeSorter<PlainEdge>*);
template absl::StatusOr<AdjacencyCounts> WriteAdjacency(EdgeSorter<WeightedEdge>&, const AdjacencyShape&, Direction,
                                                        const std::filesystem::path&, ImportMonitor&, GraphWriter&,
                                                        EdgeSorter<WeightedEdge>*);
template absl::StatusOr<AdjacencyCounts> WriteAdjacency(EdgeSorter<FullEdge>&, const AdjacencyShape&, Direction,
                                                        const std::filesystem::path&, ImportMonitor&, GraphWriter&,
                                                        EdgeSorter<FullEdge>*);

}  // namespace permafrost::data
