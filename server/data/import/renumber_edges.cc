#include "data/import/renumber_edges.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/import/node_order.h"
#include "data/sort/nameless_file.h"

namespace permafrost::data {
namespace {

// Sorted edges on disk, to be read more than once.
template <class Record>
class EdgeSpool {
 public:
  static absl::StatusOr<EdgeSpool> Create(const std::filesystem::path& directory, std::stop_token stop) {
    PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory));
    return EdgeSpool(std::move(file), std::move(stop));
  }

  // Takes in all edges and counts the degrees of their sources.
  absl::Status Fill(EdgeSorter<Record>& sorted, bool coalesce, OutDegrees& degrees) {
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
      PF_RETURN_IF_ERROR(file_.Append(std::as_bytes(edges), stop_));
    }
  }

  template <class Take>
  absl::Status ForEach(const Take& take) const {
    constexpr uint64_t kAtOnce = uint64_t{1} << 16;
    std::vector<Record> edges;
    for (uint64_t at = 0; at < file_.size(); at += edges.size() * sizeof(Record)) {
      PF_RETURN_IF_ERROR(CheckStop(stop_));
      edges.resize(std::min(kAtOnce, (file_.size() - at) / sizeof(Record)));
      PF_RETURN_IF_ERROR(file_.Read(at, std::as_writable_bytes(std::span(edges))));
      PF_RETURN_IF_ERROR(take(std::span(edges)));
    }
    return absl::OkStatus();
  }

  // As EdgeLists.
  absl::Status VisitLists(const std::function<void(NodeId, std::span<const NodeId>)>& visit) const {
    std::vector<NodeId> sources;
    NodeId node = 0;
    PF_RETURN_IF_ERROR(ForEach([&](std::span<const Record> edges) {
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

 private:
  EdgeSpool(NamelessFile file, std::stop_token stop) : file_(std::move(file)), stop_(std::move(stop)) {}
  NamelessFile file_;
  std::stop_token stop_;
};

}  // namespace

template <class Record>
absl::StatusOr<std::unique_ptr<EdgeSorter<Record>>> RenumberEdges(std::unique_ptr<EdgeSorter<Record>> sorted,
                                                                  const RenumberEdgesOptions& options,
                                                                  const EdgeSorterOptions& sorting,
                                                                  ImportMonitor& monitor, Renumbering& renumbering) {
  PF_ASSIGN_OR_RETURN(auto spool, EdgeSpool<Record>::Create(sorting.directory, monitor.stop()));
  {
    OutDegrees degrees(options.nodes);
    PF_RETURN_IF_ERROR(spool.Fill(*sorted, options.coalesce, degrees));
    sorted.reset();
    PF_RETURN_IF_ERROR(monitor.Advance("ordering nodes", 0));
    std::vector<NodeId> order;
    if (options.order == NodeOrder::kDegree) {
      order = OrderByDegree(degrees);
    } else {
      PF_ASSIGN_OR_RETURN(order,
                          OrderByCommunity(degrees, [&spool](const auto& visit) { return spool.VisitLists(visit); }));
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

}  // namespace permafrost::data
