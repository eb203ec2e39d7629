// Import of one large graph from a file of edges, whatever its packing.
// Memory: as data::Import; parses and sorts over the threads of the import's limits.
#pragma once

#include "data/import/importer.h"

namespace permafrost::data {

Importer EdgeListImporter();

}  // namespace permafrost::data
