// Reads the row of numbers that a model takes for each edge of one large graph. The row is the edge's features, or
// its weight as a single column. Threads: safe anywhere. Borrows the graph.
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

  // Writes the row of in-edge number `place` to out[width]. In-edges are numbered as in the columns of GraphView::in.
  // Returns false and writes zeros if there is no such edge, if its row is damaged, or if a category is outside the
  // range in the summary.
  bool Read(uint64_t place, float* out) const;
  bool Read(uint64_t place, int64_t* out) const;
  // Returns the DataLoss that made a Read return false.
  absl::Status Damage() const;

  // Returns the mapped bytes of the edge's id, from which Read finds the edge's row. The span is empty if the graph
  // has no ids. For kWeights, returns the bytes of the weight.
  std::span<const std::byte> ReadsOfId(uint64_t place) const;
  // Returns the mapped bytes of the edge's row. Reads the edge's id to find the row. The span is empty if the row
  // cannot be read.
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
  // One map for each categorical column. Null if categories are read as stored.
  const std::vector<CategoryMap>* maps_ = nullptr;
  std::vector<int64_t> largest_;  // the largest category of each categorical column
};

// Both functions read the rows of in-edges [begin, end) into `out`, [end - begin, width]. Errors: DataLoss.
absl::Status ReadEdgeRows(const EdgeRows& rows, uint64_t begin, uint64_t end, float* out);
absl::Status ReadEdgeRows(const EdgeRows& rows, uint64_t begin, uint64_t end, int64_t* out);

// Returns the bytes that the rows of all edges take in the store. A job reads all these bytes in an epoch.
uint64_t EdgeTableBytes(const GraphSummary& graph, EdgeInputs inputs);
// Returns the bytes that the row of one edge takes in a batch, where a category takes 8 bytes.
uint64_t EdgeRowBytes(const GraphSummary& graph, EdgeInputs inputs);

}  // namespace permafrost::data
