// A dataset with other splits than its own: folds of a set, links of a graph that are held out, or what a caller says.
// Threads: pure functions; what they make is safe anywhere, and keeps the dataset alive.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"
#include "spec/sampling.h"

namespace permafrost::data {

// A dataset with other splits than its own, or another summary, and all else as it is. If the summary says another
// number of targets than the dataset has, all labels are missing: they are absent.

struct OtherSplits {
  std::array<std::vector<uint32_t>, 3> rows;  // by Split: graphs or nodes of the dataset, rising
  std::string name;                           // of the summary
};

// `summary`: what is told of the set but for its splits, whose sizes are measured here. `checksum`: of what comes out,
// which differs wherever the splits do. Errors: DataLoss from the offsets.
absl::StatusOr<std::shared_ptr<const GraphSet>> WithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits,
                                                           GraphSetSummary summary, uint64_t checksum);

// `summary`: what is told of the graph but for its splits.
std::shared_ptr<const Graph> WithSplits(std::shared_ptr<const Graph> graph, OtherSplits splits, GraphSummary summary);

// `summary`: what is told of the graph; the sizes and what there is are its own.
std::shared_ptr<const Graph> WithSummary(std::shared_ptr<const Graph> graph, GraphSummary summary);

// A set of small graphs divided into folds instead of the splits that it was imported with.
// Threads: pure functions; what they make is safe anywhere.

// Returns all graphs, shuffled by the seed, but class by class, with classes rising. classes: a number for each graph;
// NaN is a class of its own, the first.
std::vector<uint32_t> ShuffledByClass(std::span<const float> classes, uint64_t seed);

// Graphs by split, ids rising. In the order of ShuffledByClass they are dealt to the folds one after the other, so that
// folds differ by one graph at most, in all and of each class. Fold `fold` is the test split, the next one (after the
// last the first) validation, and the others train.
std::array<std::vector<uint32_t>, 3> DrawFold(const spec::CrossValidation& validation, std::span<const float> classes);

// The set with these splits, and all else as it is; `set` itself where there are no folds. Classes are the labels where
// there is one a graph and all are whole numbers; else all graphs are of one class. Errors: DataLoss from the labels;
// InvalidArgument for more folds than graphs.
absl::StatusOr<std::shared_ptr<const GraphSet>> WithFold(std::shared_ptr<const GraphSet> set,
                                                         const spec::CrossValidation& validation);

// The edges of one large graph divided for link prediction: those that are to be predicted are held out of the graph
// that messages pass along.

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
