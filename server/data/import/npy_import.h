// Import of one large graph from a directory of NPY and NPZ files:
//   edge_index.npy   [2, edges] or [edges, 2] of integers; or adj.npz, scipy.sparse's CSR: row i to column j, and its
//                    values as weights unless all are 1
//   edge_weight.npy, edge_time.npy   [edges]; with edge_index.npy only
//   edge_feat.npy    [edges, columns]; with edge_index.npy only
//   node_feat.npy, or node_feat_bf16.npy (bfloat16 as <u2), or node_feat.npz (CSR)
//   node_label.npy   [nodes] or [nodes, targets]
//   {train,valid,test}_idx.npy of rows, or {train,valid,test}_mask.npy [nodes]
// Nodes are as many as node_feat's or node_label's rows, or adj's; else as edges and edge_list.num_nodes say.
// Threads: one at a time; sorts over several by itself.
#pragma once

#include <array>
#include <filesystem>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/source/import_monitor.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

struct NpyFiles {
  std::optional<SourceFile> edge_index, adjacency;  // one of them
  std::optional<SourceFile> edge_weights, edge_times, edge_features;
  std::optional<SourceFile> features, bfloat16_features, sparse_features, labels;
  std::optional<std::array<SourceFile, 3>> split;  // by Split
  bool split_masks = false;

  int64_t bytes() const;
};

absl::StatusOr<NpyFiles> FindNpyFiles(const ImportOptions& options);
// Writes all sections and sets all of the summary but what Finish does.
absl::Status ImportNpy(const ImportOptions& options, const NpyFiles& files, const std::filesystem::path& directory,
                       ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary);

}  // namespace permafrost::data
