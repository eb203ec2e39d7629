// Streaming import of OGB's graph-property CSV layout into a GraphSet.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
// Memory: bounded by the largest graph and the offsets, and so by the import's limits; columns are streamed.
#pragma once

#include "data/import/importer.h"

namespace permafrost::data {

Importer OgbGraphsImporter();

}  // namespace permafrost::data
