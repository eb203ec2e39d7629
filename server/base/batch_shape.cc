#include "base/batch_shape.h"

#include "absl/strings/str_cat.h"

namespace permafrost {

std::string ToString(const BatchShape& shape) {
  return absl::StrCat("(", shape.nodes, " nodes, ", shape.edges, " edges, ", shape.graphs, " graphs)");
}

}  // namespace permafrost
