// A dataset with other features than its own: made ones in place of its own, or its own with the categories of another
// dataset, its labels' too.
// Threads: pure functions; what they make is safe anywhere, and keeps the dataset alive.
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

// A graph as another has it, with node features that are made in memory in place of its own.
// Threads: as Graph.

// The ways to make a node's row of features.
enum class MadeFeatures {
  kOwnColumn,  // 1 in a column of its own
  kDegree,     // 1 in the column, of kDegreeCap + 1, of its in-edges' number, or of kDegreeCap where they are more
  kOwnDegree,  // the same, without the columns beyond the graph's largest number of in-edges
  kConstant    // one column of 1
};
inline constexpr int64_t kDegreeCap = 255;

// Returns the summary of such a graph, from a graph's own summary.
GraphSummary SummaryWith(MadeFeatures features, GraphSummary summary);

// Keeps `graph` alive. Takes 12 bytes a node, or 4 for kConstant. Errors: DataLoss (offsets are read for degrees).
absl::StatusOr<std::shared_ptr<const Graph>> WithFeatures(const std::shared_ptr<const Graph>& graph,
                                                          MadeFeatures features);

// A set of graphs as another has it, with node features that are made in memory in place of its own.
// Threads: as GraphSet.

// Features of a set's nodes: kDegree, one column of categories 0..kDegreeCap, whatever the set's degrees are, so that
// weights trained on one set serve another; or kConstant. Nodes of a set have no columns of their own.
GraphSetSummary SummaryWith(MadeFeatures features, GraphSetSummary summary);

// Keeps `set` alive. Takes 4 bytes a node. Errors: DataLoss (all edges are read for kDegree).
absl::StatusOr<std::shared_ptr<const GraphSet>> WithFeatures(std::shared_ptr<const GraphSet> set,
                                                             MadeFeatures features);

// A dataset whose categories are read as those of another one, by the source's values. Weights that were trained on the
// other one can then be given it.

// Translates a table of features. Its columns in no table of `own` stay as they are, in their order; `known` has as
// many of them.
struct FeatureTranslation {
  FeatureCategories own, known;   // what it is, and what it becomes: tables in pairs
  std::vector<CategoryMap> maps;  // of each pair
  // True if only ranges change, which become those of `known`.
  bool as_it_stands() const;
};

// Names the parts of a dataset that change; nullopt: the part stays as it is.
struct Translation {
  std::optional<FeatureTranslation> node, edge;
  struct OfClasses {
    CategoryTable known;
    CategoryMap map;  // labels of unknown classes become missing ones
  };
  std::optional<OfClasses> classes;
};

// Values of a source, rising, and in how many rows each is.
using CountedValues = std::vector<std::pair<int64_t, int64_t>>;

// The unknown values of the table at `table` among those of nodes (`of_edges`: edges). Errors: DataLoss.
absl::StatusOr<CountedValues> CountUnknown(const GraphSet& set, bool of_edges, const FeatureTranslation& translation,
                                           size_t table);
absl::StatusOr<CountedValues> CountUnknown(const Graph& graph, const FeatureTranslation& translation, size_t table);
// The unknown classes among its labels; `own`: its table. Errors: DataLoss.
absl::StatusOr<CountedValues> CountUnknownClasses(const GraphSet& set, const CategoryTable& own,
                                                  const CategoryMap& map);
absl::StatusOr<CountedValues> CountUnknownClasses(const Graph& graph, const CategoryTable& own, const CategoryMap& map);

// Features and labels that differ are made in memory: 4 bytes a value. Ranges of its summary are those of `known`, and
// one more category where values are unknown. Errors: DataLoss.
absl::StatusOr<std::shared_ptr<const GraphSet>> Translate(std::shared_ptr<const GraphSet> set, Translation translation);
// Categories of edges are read as such where they stand; labels that differ are made in memory. `node` is not read.
absl::StatusOr<std::shared_ptr<const Graph>> Translate(std::shared_ptr<const Graph> graph, Translation translation);
// Bytes of memory that the set made of this one takes.
uint64_t BytesOf(const GraphSet& set, const Translation& translation);

}  // namespace permafrost::data
