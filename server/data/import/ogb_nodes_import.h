// Import of one large graph of OGB's node-property CSV layout; tables may be NPY or NPZ files of the same stems.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
// Memory: as data::Import; parses and sorts over the threads of the import's limits.
#pragma once

#include "data/import/importer.h"

namespace permafrost::data {

Importer OgbNodesImporter();

}  // namespace permafrost::data
