// Datasets derived from a dataset by replacing its features. The new features are made in memory, or are the old
// features translated into the categories of another dataset. Labels are translated with them. Threads: pure
// functions. The datasets that they return are safe anywhere, and keep the original alive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/categories.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// A graph like another graph, but with node features that are made in memory in place of its own.
// Threads: same as Graph.

// The ways to make a node's row of features.
enum class MadeFeatures {
  kOwnColumn,  // a one-hot row with a column for each node
  kDegree,     // a one-hot row of kDegreeCap + 1 columns: the in-degree, capped at kDegreeCap
  kOwnDegree,  // like kDegree, but with no columns above the graph's largest in-degree
  kConstant    // one column that is always 1
};
inline constexpr int64_t kDegreeCap = 255;

// Returns the summary that the graph gets with these features. `summary` is the graph's present summary.
GraphSummary SummaryWith(MadeFeatures features, GraphSummary summary);

// Returns `graph` with features made in memory, and keeps `graph` alive. The features take 12 bytes a node, or 4
// bytes for kConstant. Errors: DataLoss, since the degrees are read from the offsets.
absl::StatusOr<std::shared_ptr<const Graph>> WithFeatures(const std::shared_ptr<const Graph>& graph,
                                                          MadeFeatures features);

// A set like another set, but with node features that are made in memory in place of its own.
// Threads: same as GraphSet.

// Returns the summary that the set gets with these features. Sets have kDegree and kConstant only. For a set, kDegree
// is one column of categories 0..kDegreeCap. The range does not depend on the degrees in the set, so that weights
// trained on one set can be used on another.
GraphSetSummary SummaryWith(MadeFeatures features, GraphSetSummary summary);

// Returns `set` with features made in memory, and keeps `set` alive. The features take 4 bytes a node. Errors:
// DataLoss, since kDegree reads all edges.
absl::StatusOr<std::shared_ptr<const GraphSet>> WithFeatures(std::shared_ptr<const GraphSet> set,
                                                             MadeFeatures features);

// A dataset whose categories are translated into the categories of another dataset, by the values in their sources.
// Weights that were trained on the other dataset can then be used on the translated one.

// Translates a table of features. Columns that are in no table of `own` are plain: they keep their values and their
// order. `known` has as many plain columns as `own`.
struct FeatureTranslation {
  FeatureCategories own, known;   // before and after the translation; table i of `own` becomes table i of `known`
  std::vector<CategoryMap> maps;  // one for each pair of tables
  // True if no value changes. Even then, the summary gets the ranges of `known`.
  bool as_it_stands() const;
};

// The parts of a dataset that change. A part that is nullopt stays as it is.
struct Translation {
  std::optional<FeatureTranslation> node, edge;
  struct OfClasses {
    CategoryTable known;
    CategoryMap map;  // a label of an unknown class becomes a missing label
  };
  std::optional<OfClasses> classes;
};

// Pairs (value in the source, number of rows with this value), in rising order of the values.
using CountedValues = std::vector<std::pair<int64_t, int64_t>>;

// Counts, for each unknown value of the table `translation.own.tables[table]`, the rows that hold the value. The
// table belongs to the edge features if `of_edges` is true, else to the node features. The table of a large graph
// always belongs to the edge features. Errors: DataLoss.
absl::StatusOr<CountedValues> CountUnknown(const GraphSet& set, bool of_edges, const FeatureTranslation& translation,
                                           size_t table);
absl::StatusOr<CountedValues> CountUnknown(const Graph& graph, const FeatureTranslation& translation, size_t table);
// Counts the labels of each unknown class. `own` is the dataset's table of classes. Errors: DataLoss.
absl::StatusOr<CountedValues> CountUnknownClasses(const GraphSet& set, const CategoryTable& own,
                                                  const CategoryMap& map);
absl::StatusOr<CountedValues> CountUnknownClasses(const Graph& graph, const CategoryTable& own, const CategoryMap& map);

// Returns the translated set. Features and labels that change are made in memory, at 4 bytes a value. The ranges in
// the set's summary become the ranges of `known`, with one more category in each column that has unknown values.
// Errors: DataLoss.
absl::StatusOr<std::shared_ptr<const GraphSet>> Translate(std::shared_ptr<const GraphSet> set, Translation translation);
// Returns the translated graph. Edge features stay where they are, and readers translate their categories
// (GraphView::edge_categories). Labels that change are made in memory. `translation.node` is ignored. Errors:
// DataLoss.
absl::StatusOr<std::shared_ptr<const Graph>> Translate(std::shared_ptr<const Graph> graph, Translation translation);
// Returns the bytes of memory that Translate takes for this set.
uint64_t BytesOf(const GraphSet& set, const Translation& translation);

}  // namespace permafrost::data
