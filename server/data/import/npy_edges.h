// Edges of arrays: edge_index.npy with what stands beside it, or adj.npz.
// Threads: one at a time. Memory: buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "data/import/graph_edges.h"
#include "data/source/csr_matrix.h"
#include "data/source/npy_array.h"
#include "data/source/source_file.h"

namespace permafrost::data {

struct NpyEdgeFiles {
  const SourceFile& index;
  const std::optional<SourceFile>&weights, &times;
  uint64_t max_id = 0;  // of nodes
  std::string why;      // in parentheses, or empty
};

template <class Record>
class NpyEdgeSource final : public EdgeSource<Record> {
 public:
  static absl::StatusOr<NpyEdgeSource> Open(const NpyEdgeFiles& files, ImportMonitor& monitor);
  absl::StatusOr<bool> Next(std::vector<Record>& edges) override;
  uint64_t count() const { return edges_; }

 private:
  NpyEdgeSource(NpyArray sources, uint64_t max_id, std::string why)
      : sources_(std::move(sources)), max_id_(max_id), why_(std::move(why)) {}
  absl::Status ReadEnds(size_t count);

  NpyArray sources_;                 // of [edges, 2]: both ends
  std::optional<NpyArray> targets_;  // of [2, edges]
  std::optional<NpyArray> weights_, times_;
  uint64_t max_id_;
  std::string why_;
  uint64_t edges_ = 0, given_ = 0;
  std::vector<int64_t> ends_;  // sources, then targets; or pairs
  std::vector<float> weight_buffer_;
  std::vector<int64_t> time_buffer_;
};

// Edges of a square matrix: entry (i, j) is an edge from i to j, its value the weight. Zeros are no edges.
template <class Record>
class MatrixEdgeSource final : public EdgeSource<Record> {
 public:
  // name: of the file, for messages.
  MatrixEdgeSource(CsrMatrix matrix, std::string name) : matrix_(std::move(matrix)), name_(std::move(name)) {}
  absl::StatusOr<bool> Next(std::vector<Record>& edges) override;

 private:
  CsrMatrix matrix_;
  std::string name_;
  std::vector<MatrixEntry> entries_;
};

extern template class NpyEdgeSource<PlainEdge>;
extern template class NpyEdgeSource<WeightedEdge>;
extern template class NpyEdgeSource<FullEdge>;
extern template class MatrixEdgeSource<PlainEdge>;
extern template class MatrixEdgeSource<WeightedEdge>;
extern template class MatrixEdgeSource<FullEdge>;

}  // namespace permafrost::data
