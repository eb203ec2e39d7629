// Sparse node features, from text or a SciPy matrix, into the store: sorted by node and column.
// Threads: one at a time. Memory: as given for sorting; 8 bytes a node and 24 a column, which limits.memory_bytes must
// hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/sort/edge_sorter.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

class SparseFeaturesImport {
 public:
  // Rows "node,feature[,value]" in any order; where the third column is missing, values are 1.
  // `why`: where the number of nodes is from, in parentheses. `renumbering`, borrowed: of the nodes.
  static absl::StatusOr<SparseFeaturesImport> ReadRows(const SourceFile& file, uint64_t nodes, const std::string& why,
                                                       const Renumbering& renumbering, const EdgeSorterOptions& sorting,
                                                       ImportMonitor& monitor);
  // A CSR matrix of scipy.sparse.save_npz.
  static absl::StatusOr<SparseFeaturesImport> ReadMatrix(const SourceFile& file, uint64_t nodes, const std::string& why,
                                                         const Renumbering& renumbering,
                                                         const EdgeSorterOptions& sorting, ImportMonitor& monitor);
  // Entries read, zeros apart.
  uint64_t entries() const { return entries_; }
  // The width of a matrix; else one more than the largest feature.
  uint64_t width() const { return width_; }

  // Writes all, once; sets node_features and node_feature_nonzeros. `width`: at least width().
  // Errors: InvalidArgument for a feature that stands twice at one node; ResourceExhausted.
  absl::Status Write(uint64_t width, const std::filesystem::path& directory, ImportMonitor& monitor,
                     GraphWriter& writer, GraphSummary& summary);

 private:
  SparseFeaturesImport(std::string name, uint64_t nodes, const Renumbering& renumbering,
                       const EdgeSorterOptions& sorting, ImportMonitor& monitor)
      : name_(std::move(name)),
        nodes_(nodes),
        renumbering_(&renumbering),
        sorted_(std::make_unique<EdgeSorter<WeightedEdge>>(sorting, monitor.stop())) {}

  std::string name_;
  uint64_t nodes_, entries_ = 0, width_ = 0;
  const Renumbering* renumbering_;
  std::unique_ptr<EdgeSorter<WeightedEdge>> sorted_;
};

}  // namespace permafrost::data
