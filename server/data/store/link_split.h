// The edges of one large graph divided for link prediction: those that are to be predicted are held out of the graph
// that messages pass along. Threads: pure functions; what they make is safe anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

// An edge from `source` to `target`, which is to be told from pairs without one.
struct Link {
  NodeId source = 0, target = 0;
  bool operator==(const Link&) const = default;
};

struct LinkSplit {
  // The graph without the edges of validation and test, in memory (8 bytes a node, and 4 an edge, of weighted ones 8),
  // over the nodes and features of the store. It has neither labels nor splits; the features of edges only where they
  // were asked for (8 bytes an edge more).
  std::shared_ptr<const Graph> messages;
  // By Split, in the order of targets, then sources. In a symmetric graph an edge and its inverse are one link, in a
  // direction that the seed decides; parallel edges are one too, and self-loops none.
  std::array<std::vector<Link>, 3> links;
  // For links divided by time, [links] the timestamp of each; else empty.
  std::array<std::vector<int64_t>, 3> times;
};

// Returns the split of the edges between two nodes, whatever their direction. Stateless: it depends on the pair and the
// options alone.
Split SplitOf(const spec::LinkSplitOptions& options, NodeId a, NodeId b);

// Reads all edges once. `keep_going` is asked now and then. Errors: Cancelled when it says no; DataLoss;
// InvalidArgument where a graph has 2^32 links of a split or more.
absl::StatusOr<LinkSplit> SplitLinks(const std::shared_ptr<const Graph>& graph, const spec::LinkSplitOptions& options,
                                     const std::function<bool()>& keep_going, bool edge_features = false);

// Divides the links by their timestamps: the earliest train, those after them validate, the latest test. Links of one
// time are of one split, so that validation and test may be smaller than asked. `messages` has every edge, since who
// sees it is decided edge by edge (NeighborSamplingOptions::temporal). Parallel edges are links of their own. Errors:
// those of SplitLinks; InvalidArgument where the graph has no timestamps.
absl::StatusOr<LinkSplit> SplitLinksByTime(const std::shared_ptr<const Graph>& graph,
                                           const spec::LinkSplitOptions& options,
                                           const std::function<bool()>& keep_going, bool edge_features = false);

// The links that the source divided, in its order, whether they are edges of the graph or not. Edges between the two
// nodes of a link of validation or test, in either direction, are held out, also where they are links to train on. The
// graph must have such links (summary().links.given). Errors: those of SplitLinks.
absl::StatusOr<LinkSplit> TakeGivenLinks(const std::shared_ptr<const Graph>& graph,
                                         const std::function<bool()>& keep_going, bool edge_features = false);

// Bytes that the split of a graph takes in memory.
uint64_t LinkSplitBytes(const GraphSummary& graph, bool edge_features = false);
uint64_t GivenLinksBytes(const GraphSummary& graph, bool edge_features = false);
uint64_t TimedLinkSplitBytes(const GraphSummary& graph);

// True if the graph has an edge from `source` to `target`, both below its number of nodes. `ok` becomes false if a
// touched block is damaged.
bool HasEdge(const GraphView& view, NodeId source, NodeId target, bool& ok);

}  // namespace permafrost::data
