#include "data/source/import_options.h"

#include "data/store/graph.h"

namespace permafrost::data {

static_assert(spec::kMostRows == kMaxNodes);

uint64_t DefaultImportMemory() { return MemoryLimit() / 4; }

}  // namespace permafrost::data
