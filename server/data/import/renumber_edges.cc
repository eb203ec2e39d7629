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
#include "data/sort/edge_spool.h"

namespace permafrost::data {
namespace {

// Keeps all edges and counts the degrees of their sources.
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

// As EdgeLists.
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

}  // namespace permafrost::data
