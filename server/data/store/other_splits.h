// Datasets derived from a dataset by replacing its splits: with the folds of a set, with the links held out of a
// graph, or with rows that the caller names.
// Threads: pure functions. The datasets that they return are safe anywhere, and keep the original alive.
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

// A dataset with other splits or another summary, and otherwise unchanged. If the new summary has another number of
// targets than the dataset, the result has no labels: all of them are missing.

struct OtherSplits {
  std::array<std::vector<uint32_t>, 3> rows;  // by Split: rising ids of graphs or nodes of the dataset
  std::string name;                           // becomes split_name in the summary
};

// Returns the set with these splits and this summary. WithSplits measures the new splits and overwrites their sizes
// in `summary`. `checksum` becomes the set's checksum, and must differ for different splits. Errors: DataLoss, since
// the offsets are read.
absl::StatusOr<std::shared_ptr<const GraphSet>> WithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits,
                                                           GraphSetSummary summary, uint64_t checksum);

// Returns the graph with these splits and this summary. The numbers of nodes in the new splits overwrite the numbers
// in `summary`.
std::shared_ptr<const Graph> WithSplits(std::shared_ptr<const Graph> graph, OtherSplits splits, GraphSummary summary);

// Returns the graph with another summary. `summary` must state the graph's own sizes and sections.
std::shared_ptr<const Graph> WithSummary(std::shared_ptr<const Graph> graph, GraphSummary summary);

// Division of a set of small graphs into folds, which replace the splits of the import.
// Threads: pure functions. The sets that they return are safe anywhere.

// Returns the ids of all graphs, ordered by class and shuffled by the seed within each class. classes[i] is the class
// of graph i. NaN is a class of its own, and comes first.
std::vector<uint32_t> ShuffledByClass(std::span<const float> classes, uint64_t seed);

// Returns the graphs of each split, in rising order of their ids. Graphs are dealt in turn to the folds, in the order
// of ShuffledByClass. Folds therefore differ by at most one graph, in total and in each class. Fold `fold` is the
// test split. The next fold (fold 0, if `fold` is the last one) is the validation split. All other folds form the
// training split.
std::array<std::vector<uint32_t>, 3> DrawFold(const spec::CrossValidation& validation, std::span<const float> classes);

// Returns the set with the splits of DrawFold, or `set` itself if `validation` asks for no folds. The labels are the
// classes if each graph has one label and all labels are whole numbers. Otherwise all graphs are of one class.
// Errors: DataLoss from the labels; InvalidArgument if there are more folds than graphs.
absl::StatusOr<std::shared_ptr<const GraphSet>> WithFold(std::shared_ptr<const GraphSet> set,
                                                         const spec::CrossValidation& validation);

// The edges of one large graph, divided for link prediction. The links that are to be predicted are held out of the
// graph that messages pass along.

// An edge from `source` to `target`. The model learns to tell links from pairs of nodes without an edge.
struct Link {
  NodeId source = 0, target = 0;
  bool operator==(const Link&) const = default;
};

struct LinkSplit {
  // The graph that messages pass along. It lacks the edges of validation and test links, except after
  // SplitLinksByTime. It has the nodes and features of the store, and its own edges in memory: 8 bytes a node and 4
  // bytes an edge. Weights add 4 bytes an edge, timestamps 8 and edge features 8. It has neither labels nor splits,
  // and has edge features only if they were asked for.
  std::shared_ptr<const Graph> messages;
  // By Split. Unless the function that made the split says otherwise, links are ordered by target and then by source.
  // In a symmetric graph, an edge and its inverse are one link, whose direction the seed decides. Parallel edges are
  // one link too, and a self-loop is no link.
  std::array<std::vector<Link>, 3> links;
  // By Split: the timestamp of each link, if the links are divided by time. Otherwise empty.
  std::array<std::vector<int64_t>, 3> times;
};

// Returns the split of all edges between two nodes, whatever their direction. It depends on the two nodes and the
// options alone.
Split SplitOf(const spec::LinkSplitOptions& options, NodeId a, NodeId b);

// Divides the links by drawing a split for each pair of nodes with an edge (SplitOf). Reads all edges once, and calls
// `keep_going` now and then. Errors: Cancelled if `keep_going` returns false; DataLoss; InvalidArgument if a split
// has 2^32 - 1 links or more.
absl::StatusOr<LinkSplit> SplitLinks(const std::shared_ptr<const Graph>& graph, const spec::LinkSplitOptions& options,
                                     const std::function<bool()>& keep_going, bool edge_features = false);

// Divides the links by their timestamps: the earliest links are for training, later links for validation, and the
// latest links for test. Links with equal timestamps are in the same split, so the validation and test splits may be
// smaller than asked for. `messages` has every edge, since the sampler decides for each seed which edges it may see
// (NeighborSamplingOptions::temporal). Parallel edges are separate links. Errors: those of SplitLinks;
// InvalidArgument if the graph has no timestamps.
absl::StatusOr<LinkSplit> SplitLinksByTime(const std::shared_ptr<const Graph>& graph,
                                           const spec::LinkSplitOptions& options,
                                           const std::function<bool()>& keep_going, bool edge_features = false);

// Returns the links that the source gave, with the source's splits and order. A link need not be an edge of the
// graph. Every edge between the two nodes of a validation or test link, in either direction, is held out. This holds
// even for an edge that is also a training link. The graph must have given links (summary().links.given). Errors:
// Cancelled if `keep_going` returns false; DataLoss.
absl::StatusOr<LinkSplit> TakeGivenLinks(const std::shared_ptr<const Graph>& graph,
                                         const std::function<bool()>& keep_going, bool edge_features = false);

// The next three functions return the bytes of memory that the results of SplitLinks, TakeGivenLinks and
// SplitLinksByTime take, in this order.
uint64_t LinkSplitBytes(const GraphSummary& graph, bool edge_features = false);
uint64_t GivenLinksBytes(const GraphSummary& graph, bool edge_features = false);
uint64_t TimedLinkSplitBytes(const GraphSummary& graph);

// Returns whether the graph has an edge from `source` to `target`. Both nodes must be rows of the graph. Sets `ok` to
// false if it touches a damaged block.
bool HasEdge(const GraphView& view, NodeId source, NodeId target, bool& ok);

}  // namespace permafrost::data
