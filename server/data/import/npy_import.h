// Import of one large graph from a directory of NPY and NPZ files:
//   edge_index.npy   [2, edges] or [edges, 2] of integers; or adj.npz, scipy.sparse's CSR: row i to column j, and its
//                    values as weights unless all are 1
//   edge_weight.npy, edge_time.npy   [edges]; with edge_index.npy only
//   edge_feat.npy    [edges, columns]; with edge_index.npy only
//   node_feat.npy, or node_feat_bf16.npy (bfloat16 as <u2), or node_feat.npz (CSR)
//   node_label.npy   [nodes] or [nodes, targets]
//   {train,valid,test}_idx.npy of rows, or {train,valid,test}_mask.npy [nodes]
// Nodes are as many as node_feat's or node_label's rows, or adj's; else as edges and edge_list.num_nodes say.
// Memory: as data::Import; sorts over the threads of the import's limits.
#pragma once

#include "data/import/importer.h"

namespace permafrost::data {

Importer NpyImporter();

}  // namespace permafrost::data
