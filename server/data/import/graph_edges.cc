#include "data/import/graph_edges.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/renumbering.h"
#include "data/sort/edge_sorter.h"
#include "data/sort/nameless_file.h"

namespace permafrost::data {
namespace {

uint64_t RandomKey() {
  std::random_device random;
  return std::uniform_int_distribution<uint64_t>()(random);
}

// EdgeSymmetry hashes the bytes of these structs, so the structs must have no padding.
struct UnorderedEnds {
  uint64_t key = 0;
  EdgeKey ends = 0;  // the smaller row is in the upper half
};
struct ValuedEnds {
  UnorderedEnds ends;
  int64_t timestamp = 0;
  uint64_t weight = 0;  // the bits of the float
};

}  // namespace

EdgeSymmetry::EdgeSymmetry(bool values) : compares_values_(values), key_(RandomKey()) {}

template <class Record>
void EdgeSymmetry::Add(std::span<const Record> edges) {
  const auto add = [](Wide& sum, const auto& hashed) {
    const Hash128Value hash = Hash128(&hashed, sizeof(hashed));
    sum += static_cast<Wide>(hash.high) << 64 | hash.low;
  };
  for (const Record& edge : edges) {
    const NodeId major = MajorOf(edge.key), minor = MinorOf(edge.key);
    if (major == minor) continue;
    const size_t direction = major < minor ? 0 : 1;
    const UnorderedEnds ends{key_, MakeEdgeKey(std::min(major, minor), std::max(major, minor))};
    add(ends_[direction], ends);
    if constexpr (Record::kHasWeight) {
      if (!compares_values_) continue;
      ValuedEnds valued{.ends = ends};
      // 0 and -0 count as the same weight.
      valued.weight = std::bit_cast<uint32_t>(edge.weight == 0 ? 0.0F : edge.weight);
      if constexpr (Record::kHasAll) valued.timestamp = edge.timestamp;
      add(values_[direction], valued);
    }
  }
}

template void EdgeSymmetry::Add(std::span<const PlainEdge>);
template void EdgeSymmetry::Add(std::span<const WeightedEdge>);
template void EdgeSymmetry::Add(std::span<const FullEdge>);

namespace {

// The kind of list that the edges turned out to be.
struct FoundDirections {
  EdgeDirections directions = EdgeDirections::kUnknown;
  bool symmetric = false;  // true if each edge is stored in both directions, with equal values
};

// Adds all edges to the sorter. Adds inverses too if they are asked for, or if kAuto finds inverses missing. Only the
// end of the source tells whether they are missing. Until then, edges that do not fit in the sorter's memory wait on
// disk.
template <class Record>
absl::StatusOr<FoundDirections> ReadEdges(EdgeSource<Record>& source, const EdgesPlan& plan, bool has_values,
                                          ImportMonitor& monitor, EdgeSorter<Record>& in) {
  const InverseEdges asked = plan.options.inverse_edges;
  EdgeSymmetry symmetry(has_values);
  std::optional<EdgeSpool<Record>> waiting;
  std::vector<Record> edges;
  for (;;) {
    PF_ASSIGN_OR_RETURN(const bool more, source.Next(edges));
    if (!more) break;
    if (asked != InverseEdges::kAdd) symmetry.Add(std::span<const Record>(edges));
    if (asked == InverseEdges::kAuto && !waiting && edges.size() > in.room()) {
      PF_ASSIGN_OR_RETURN(waiting, EdgeSpool<Record>::Create(plan.directory, monitor.stop()));
    }
    PF_RETURN_IF_ERROR(waiting ? waiting->Append(edges) : in.Add(edges));
  }
  const bool added = asked == InverseEdges::kAdd || (asked == InverseEdges::kAuto && !symmetry.ends_match());
  if (asked == InverseEdges::kAuto && !added) in.DropInverses();
  if (waiting) {
    PF_RETURN_IF_ERROR(waiting->ForEach([&in](std::span<const Record> late) { return in.Add(late); }));
  }
  if (asked == InverseEdges::kKeep) {
    return FoundDirections{symmetry.ends_match() ? EdgeDirections::kKeptBoth : EdgeDirections::kKept};
  }
  if (asked == InverseEdges::kAuto) {
    monitor.Note(InverseEdgesNote(added));
    if (!added && !symmetry.values_match()) {
      monitor.Note(absl::StrCat("edges: the graph is directed, since the two directions of some edges differ in their ",
                                plan.weights && plan.timestamps ? "weights or timestamps"
                                : plan.weights                  ? "weights"
                                                                : "timestamps"));
    }
  }
  if (added) return FoundDirections{EdgeDirections::kAdded, /*symmetric=*/true};
  return FoundDirections{EdgeDirections::kListed, symmetry.values_match()};
}

struct AdjacencyShape {
  uint64_t nodes = 0;  // larger than every row
  // True to merge repeated edges. The merged edge has the sum of their weights, their latest timestamp and their
  // first row.
  bool coalesce = false;
  bool weights = false, timestamps = false, edge_ids = false;  // sections to write; the records must have the fields
  const Renumbering* renumbering = nullptr;                    // for messages, which name rows of the source
};

struct AdjacencyCounts {
  uint64_t edges = 0, self_loops = 0;
  uint64_t duplicates = 0, equal = 0;  // repeated edges: dropped ones (duplicates), and kept ones (equal)
  uint64_t max_degree = 0;             // the most edges that are grouped under one row
  uint64_t isolated_nodes = 0;         // nodes without an edge at either end
};

struct AdjacencySections {
  SectionKind offsets, neighbors, weights, timestamps, edge_ids;
};
constexpr AdjacencySections kInSections = {SectionKind::kInOffsets, SectionKind::kInNeighbors, SectionKind::kInWeights,
                                           SectionKind::kInTimestamps, SectionKind::kInEdgeIds};
constexpr AdjacencySections kOutSections = {SectionKind::kOutOffsets, SectionKind::kOutNeighbors,
                                            SectionKind::kOutWeights, SectionKind::kOutTimestamps,
                                            SectionKind::kOutEdgeIds};

// The fields of kept edges as columns, for one batch of the sorter at a time.
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

// Writes sorted edges as the sections of one direction of a graph. `directory` is for temporary files. If
// `transposed` is set, every kept edge is also added to `transposed` in the same order, with its ends swapped.
// Threads: one at a time. Memory: the offsets (8 bytes per node), one bit per node, and buffers.
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

  // Errors: those of the disk; Cancelled; InvalidArgument if merged weights do not add up to a finite number.
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

  // Puts one edge per key into kept_. The last edge waits in pending_, since the next batch may hold more edges of
  // its key.
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

  // Turns the counts in offsets_ into running sums.
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

std::string InverseEdgesNote(bool added) {
  return added ? "inverse edges: added, since the source lists some edges in one direction alone"
               : "inverse edges: not added, since the source lists both directions of every edge";
}

uint64_t ImportMemory(const ImportOptions& options, const ImportLimits& limits) {
  constexpr uint64_t kLeast = uint64_t{16} << 20;
  const uint64_t wanted = options.memory_bytes == 0 ? limits.memory_bytes : options.memory_bytes;
  return std::max(kLeast, std::min(wanted, limits.memory_bytes));
}

absl::Status CheckNodes(std::string_view source, uint64_t nodes, const ImportLimits& limits, NodeOrder order) {
  const uint64_t node_bytes = order == NodeOrder::kNone ? sizeof(uint64_t) : kOrderBytesPerNode;
  if (nodes <= limits.memory_bytes / node_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      AbslView(source), ": ", nodes, " nodes take more memory than an import's limit, ", limits.memory_bytes,
      " bytes (", limits.memory_bytes / node_bytes, " at ", node_bytes, " bytes each)"));
}

template <class Record>
absl::Status WriteEdges(EdgeSource<Record>& source, const EdgesPlan& plan, ImportMonitor& monitor, GraphWriter& writer,
                        GraphSummary& summary, Renumbering& renumbering) {
  const InverseEdges asked = plan.options.inverse_edges;
  const bool has_values = plan.weights || plan.timestamps;
  const bool may_be_directed = asked == InverseEdges::kKeep || (asked == InverseEdges::kAuto && has_values);
  // Two sorts may run at once, since the first passes its edges to the second. Then each gets half of the memory.
  EdgeSorterOptions sorting{
      .directory = plan.directory,
      .memory_bytes = may_be_directed && plan.options.keep_out_edges ? plan.memory_bytes / 2 : plan.memory_bytes,
      .add_inverses = asked != InverseEdges::kKeep,
      .threads = monitor.limits().threads};
  auto in = std::make_unique<EdgeSorter<Record>>(sorting, monitor.stop());
  PF_ASSIGN_OR_RETURN(const FoundDirections found, ReadEdges(source, plan, has_values, monitor, *in));
  const bool symmetric = found.symmetric, both_ways = !symmetric && plan.options.keep_out_edges;
  const uint64_t nodes = std::max(plan.least_nodes, in->rows_seen());
  PF_RETURN_IF_ERROR(CheckNodes("edges", nodes, monitor.limits(), plan.options.order));
  PF_RETURN_IF_ERROR(monitor.Advance("sorting", 0));
  PF_RETURN_IF_ERROR(in->Finish());
  sorting.add_inverses = false;
  if (plan.options.order != NodeOrder::kNone) {
    const RenumberEdgesOptions renumber{.order = plan.options.order, .nodes = nodes, .coalesce = plan.options.coalesce};
    PF_ASSIGN_OR_RETURN(in, RenumberEdges<Record>(std::move(in), renumber, sorting, monitor, renumbering));
  }

  std::unique_ptr<EdgeSorter<Record>> out;
  if (both_ways) out = std::make_unique<EdgeSorter<Record>>(sorting, monitor.stop());
  AdjacencyShape shape{.nodes = nodes,
                       .coalesce = plan.options.coalesce,
                       .weights = plan.weights,
                       .timestamps = plan.timestamps,
                       .edge_ids = plan.edge_ids,
                       .renumbering = &renumbering};
  using Writer = AdjacencyWriter<Record>;
  PF_ASSIGN_OR_RETURN(const AdjacencyCounts counts,
                      Writer(shape, plan.directory, monitor, writer, out.get()).Write(*in, kInSections));
  in.reset();
  if (both_ways) {
    PF_RETURN_IF_ERROR(out->Finish());
    shape.coalesce = false;  // the first writer has merged the repeated edges already
    PF_RETURN_IF_ERROR(Writer(shape, plan.directory, monitor, writer, nullptr).Write(*out, kOutSections).status());
  }
  summary.nodes = static_cast<int64_t>(nodes);
  summary.edges = static_cast<int64_t>(counts.edges);
  summary.symmetric = symmetric;
  summary.directions = found.directions;
  summary.inverse_edges_added = found.directions == EdgeDirections::kAdded;
  summary.order = plan.options.order;
  summary.weighted = plan.weights;
  summary.timestamped = plan.timestamps;
  summary.self_loops = static_cast<int64_t>(counts.self_loops);
  summary.isolated_nodes = static_cast<int64_t>(counts.isolated_nodes);
  summary.max_degree = static_cast<int64_t>(counts.max_degree);
  summary.duplicate_edges = static_cast<int64_t>(counts.duplicates);
  summary.equal_edges = static_cast<int64_t>(counts.equal);
  return absl::OkStatus();
}

template absl::Status WriteEdges(EdgeSource<PlainEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&, GraphSummary&,
                                 Renumbering&);
template absl::Status WriteEdges(EdgeSource<WeightedEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&,
                                 GraphSummary&, Renumbering&);
template absl::Status WriteEdges(EdgeSource<FullEdge>&, const EdgesPlan&, ImportMonitor&, GraphWriter&, GraphSummary&,
                                 Renumbering&);

}  // namespace permafrost::data
