// Types that the two kinds of store share: types of features, splits, sizes. Threads: value types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "spec/import_options.h"

namespace permafrost::data {

// kSparse: rows of (column, value) in a large graph. kInt8: multiples of a scale a column.
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

// True where features of this type are categories. The features of one large graph's nodes are an exception: they are
// numbers.
constexpr bool IsCategorical(DataType type) {
  return type == DataType::kInt32 || type == DataType::kInt64 || type == DataType::kUint8;
}

// Tells people what a column's categories stand for. data/store/categories.h has all of it.
struct CategorySummary {
  std::string name;     // "label 1", "column 0", "degree"
  int64_t column = 0;   // of the features, the first one
  int64_t columns = 1;  // one-hot columns, or one column of integers
  int64_t values = 0;   // different values of the source; 0: more than are kept
  std::vector<int64_t> first_values;
  bool operator==(const CategorySummary&) const = default;
};

// Most columns of the nodes' positions.
inline constexpr int64_t kMaxPositionColumns = 16;

struct FeatureSummary {
  DataType type = DataType::kNone;
  int64_t width = 0;
  std::vector<double> min, max;  // per column; empty for a table without rows
  // The type of the source's values before the import converted them; kNone: they are as the source has them.
  DataType converted_from = DataType::kNone;
  // The error of the conversion: absolute differences to the source's values, each divided by the largest absolute
  // value of its column. The largest, and the root of the mean square, over all values.
  double largest_error = 0, rms_error = 0;
  // Summarizes the first columns that are categories. Empty where an older version imported the features.
  std::vector<CategorySummary> categories;
};

enum class Split : uint32_t { kTrain = 0, kValid = 1, kTest = 2 };
inline constexpr EnumNames<Split, 3> kSplitNames{
    {{{Split::kTrain, "train"}, {Split::kValid, "valid"}, {Split::kTest, "test"}}}};

// Node ids are rows, 0-based, and take 32 bits.
using NodeId = uint32_t;

using spec::kNodeOrderNames;
using spec::NodeOrder;

// The directions of its edges that a store holds, and why.
enum class EdgeDirections : uint32_t {
  kUnknown,   // an older version imported it and did not look
  kAdded,     // the import stored an inverse with each edge
  kListed,    // the import would have added inverses, but the source lists both directions of every edge
  kKept,      // edges were to be kept as they stand; some are listed in one direction alone
  kKeptBoth,  // the same, but the source lists both directions of every edge
};
inline constexpr EnumNames<EdgeDirections, 5> kEdgeDirectionsNames{{{{EdgeDirections::kUnknown, "unknown"},
                                                                     {EdgeDirections::kAdded, "added"},
                                                                     {EdgeDirections::kListed, "listed"},
                                                                     {EdgeDirections::kKept, "kept"},
                                                                     {EdgeDirections::kKeptBoth, "kept-both"}}}};

// Sizes of a set's or a split's graphs; standard deviations are over the population.
struct SizeStatistics {
  int64_t graphs = 0, nodes = 0, edges = 0;
  double mean_nodes = 0, std_nodes = 0, mean_edges = 0, std_edges = 0;
  int64_t max_nodes = 0, max_edges = 0;
  double node_edge_correlation = 0;  // Pearson; 0 where one does not vary
};

}  // namespace permafrost::data
