// Gives models the row of numbers that they read for each edge of one large graph: its features, or its weight as a
// single column. Threads: safe anywhere. Borrows the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "data/store/graph.h"

namespace permafrost::data {

// The input that a model reads for each edge. With kFeatures, integers are read as categories and other types as
// floats.
enum class EdgeInputs { kNone, kFeatures, kWeights };

// Returns the category in one column of a stored row. `type` must be an integer type.
int64_t CategoryAt(DataType type, const std::byte* row, int64_t column);

class EdgeRows {
 public:
  // The graph must have the requested inputs. With kNone, width() is 0, and no other method may be called.
  EdgeRows(const Graph& graph, EdgeInputs inputs);

  int64_t width() const { return width_; }
  // True if rows are read as int64. Otherwise they are read as float32.
  bool categorical() const { return categorical_; }

  // Writes to out[width] the row of the edge at `place` in the columns of `in` (GraphView). Returns false and writes
  // zeros if there is no such edge, if its row is damaged, or if a category is outside the range in the summary.
  bool Read(uint64_t place, float* out) const;
  bool Read(uint64_t place, int64_t* out) const;
  // Returns the DataLoss because of which a Read returned false.
  absl::Status Damage() const;

  // Returns the mapped bytes that Read needs to find the row of the edge, or an empty span if it needs none. For
  // kWeights these are the bytes of the weight.
  std::span<const std::byte> ReadsOfId(uint64_t place) const;
  // Returns the mapped bytes of the edge's row, after reading its id. The span is empty if the row cannot be read.
  std::span<const std::byte> ReadsOfRow(uint64_t place) const;

 private:
  // Returns false if there is no such edge.
  bool FindRow(uint64_t place, uint64_t& row) const;
  // Returns null if there is no such row or it is damaged.
  const std::byte* FindBytes(uint64_t place) const;

  const GraphView& view_;
  const EdgeInputs inputs_;
  int64_t width_ = 0;
  bool categorical_ = false;
  // a map for each categorical column; null if categories are read as stored
  const std::vector<CategoryMap>* maps_ = nullptr;
  std::vector<int64_t> largest_;  // the largest category of each categorical column
};

// These read the rows of the edges at places [begin, end) of `in` into out[end - begin, width]. Errors: DataLoss.
absl::Status ReadEdgeRows(const EdgeRows& rows, uint64_t begin, uint64_t end, float* out);
absl::Status ReadEdgeRows(const EdgeRows& rows, uint64_t begin, uint64_t end, int64_t* out);

// Returns the bytes that the rows of all edges take in the store. A job reads all of them in an epoch.
uint64_t EdgeTableBytes(const GraphSummary& graph, EdgeInputs inputs);
// Returns the bytes that the row of one edge takes in a batch, where a category takes 8 bytes.
uint64_t EdgeRowBytes(const GraphSummary& graph, EdgeInputs inputs);

}  // namespace permafrost::data
