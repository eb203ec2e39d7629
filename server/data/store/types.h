// Types that the two kinds of store share: data types of features, splits, sizes. Threads: value types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "spec/import_options.h"

namespace permafrost::data {

// kSparse means rows of (column, value) pairs, which only large graphs have. kInt8 means that a value is an integer
// times the scale of its column.
enum class DataType : uint32_t {
  kNone = 0,
  kInt32 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBfloat16 = 4,
  kUint8 = 5,
  kInt64 = 6,
  kSparse = 7,
  kInt8 = 8,
};
inline constexpr EnumNames<DataType, 9> kDataTypeNames{{{{DataType::kNone, "none"},
                                                         {DataType::kInt32, "int32"},
                                                         {DataType::kFloat32, "float32"},
                                                         {DataType::kFloat16, "float16"},
                                                         {DataType::kBfloat16, "bfloat16"},
                                                         {DataType::kUint8, "uint8"},
                                                         {DataType::kInt64, "int64"},
                                                         {DataType::kSparse, "sparse"},
                                                         {DataType::kInt8, "int8"}}}};

// True if features of this type are categories. This does not hold for the node features of one large graph, whose
// integers are numbers.
constexpr bool IsCategorical(DataType type) {
  return type == DataType::kInt32 || type == DataType::kInt64 || type == DataType::kUint8;
}

// An extract of a CategoryTable, for people to read. data/store/categories.h has the whole table.
struct CategorySummary {
  std::string name;     // "label 1", "column 0", "degree"
  int64_t column = 0;   // the first feature column that the table is for
  int64_t columns = 1;  // number of one-hot columns, or 1 for a column of integers
  int64_t values = 0;   // number of different values in the source; 0 if there are too many to keep
  std::vector<int64_t> first_values;
  bool operator==(const CategorySummary&) const = default;
};

// The largest number of columns that node positions may have.
inline constexpr int64_t kMaxPositionColumns = 16;

struct FeatureSummary {
  DataType type = DataType::kNone;
  int64_t width = 0;
  std::vector<double> min, max;  // one for each column; empty for a table without rows
  // The type of the source's values if the import converted them. kNone if they were not converted.
  DataType converted_from = DataType::kNone;
  // The largest and the root-mean-square error of the conversion, over all values. The error of a value is its
  // absolute difference from the source's value, divided by the largest absolute value of its column.
  double largest_error = 0, rms_error = 0;
  // Extracts of the first tables of categories. Empty if an older version imported the features.
  std::vector<CategorySummary> categories;
};

enum class Split : uint32_t { kTrain = 0, kValid = 1, kTest = 2 };
inline constexpr EnumNames<Split, 3> kSplitNames{
    {{{Split::kTrain, "train"}, {Split::kValid, "valid"}, {Split::kTest, "test"}}}};

// A node's id is its row, counted from 0. It takes 32 bits.
using NodeId = uint32_t;

using spec::kNodeOrderNames;
using spec::NodeOrder;

// The directions in which a store holds its edges, and the reason.
enum class EdgeDirections : uint32_t {
  kUnknown,   // imported by an older version, which did not look
  kAdded,     // the import stored an inverse with each edge
  kListed,    // the import would have added inverses, but the source lists both directions of every edge
  kKept,      // the import kept edges as they are; some are listed in one direction only
  kKeptBoth,  // the import kept edges as they are; the source lists both directions of every edge
};
inline constexpr EnumNames<EdgeDirections, 5> kEdgeDirectionsNames{{{{EdgeDirections::kUnknown, "unknown"},
                                                                     {EdgeDirections::kAdded, "added"},
                                                                     {EdgeDirections::kListed, "listed"},
                                                                     {EdgeDirections::kKept, "kept"},
                                                                     {EdgeDirections::kKeptBoth, "kept-both"}}}};

// Sizes of the graphs in a set or a split. Standard deviations are population standard deviations.
struct SizeStatistics {
  int64_t graphs = 0, nodes = 0, edges = 0;
  double mean_nodes = 0, std_nodes = 0, mean_edges = 0, std_edges = 0;
  int64_t max_nodes = 0, max_edges = 0;
  double node_edge_correlation = 0;  // Pearson correlation of nodes and edges of a graph; 0 if either is constant
};

}  // namespace permafrost::data
