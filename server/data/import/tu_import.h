// Streaming import of a TUDataset into a GraphSet. Source of the layout: Morris et al. 2020, "TUDataset: A collection
// of benchmark datasets for learning with graphs"; read as PyG reads it (torch_geometric/io/tu.py), but for what PyG
// drops: self-loops stay, and several edges with equal ends do unless options.coalesce. Memory: the labels and offsets
// of all graphs, and the largest graph; bounded by the import's limits.
#pragma once

#include "data/import/importer.h"

namespace permafrost::data {

Importer TuImporter();

}  // namespace permafrost::data
