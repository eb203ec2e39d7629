// The row that models read for each edge of one large graph: its features, or its weight as one column.
// Threads: safe anywhere. Borrows the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "data/store/graph.h"

namespace permafrost::data {

// kFeatures: integers are categories, other types floats.
enum class EdgeInputs { kNone, kFeatures, kWeights };

// One of a row of such features, as it is stored.
int64_t CategoryAt(DataType type, const std::byte* row, int64_t column);

class EdgeRows {
 public:
  // kNone: `width` is 0, and nothing else may be called. The graph must have what is asked for.
  EdgeRows(const Graph& graph, EdgeInputs inputs);

  int64_t width() const { return width_; }
  // Rows are read as int64, else as float32.
  bool categorical() const { return categorical_; }

  // The row of the edge at `place` among the columns of `in`, into out[width]. False: there is no such edge, it is
  // damaged, or a category is not of those that the summary tells, and zeros are written.
  bool Read(uint64_t place, float* out) const;
  bool Read(uint64_t place, int64_t* out) const;
  // After a false: DataLoss that says what is wrong.
  absl::Status Damage() const;

  // The mapped bytes that say which row is that of an edge; empty: it needs none.
  std::span<const std::byte> ReadsOfId(uint64_t place) const;
  // The bytes of the row itself, for which the id is read. Empty if it cannot be read.
  std::span<const std::byte> ReadsOfRow(uint64_t place) const;

 private:
  // False: there is none.
  bool FindRow(uint64_t place, uint64_t& row) const;
  // nullptr: as a false of Read.
  const std::byte* FindBytes(uint64_t place) const;

  const GraphView& view_;
  const EdgeInputs inputs_;
  int64_t width_ = 0;
  bool categorical_ = false;
  const std::vector<CategoryMap>* maps_ = nullptr;  // of each categorical column; nullptr: as they stand
  std::vector<int64_t> largest_;                    // of each categorical column
};

// Rows of `in`'s edges [begin, end) one after the other, out: [end - begin, width]. Errors: DataLoss.
absl::Status ReadEdgeRows(const EdgeRows& rows, uint64_t begin, uint64_t end, float* out);
absl::Status ReadEdgeRows(const EdgeRows& rows, uint64_t begin, uint64_t end, int64_t* out);

// Bytes that rows of such inputs take in the store, which a job reads all of in an epoch.
uint64_t EdgeTableBytes(const GraphSummary& graph, EdgeInputs inputs);
// Returns the bytes of a row in a batch, where a category takes 8 bytes.
uint64_t EdgeRowBytes(const GraphSummary& graph, EdgeInputs inputs);

}  // namespace permafrost::data
