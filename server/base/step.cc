#include "base/step.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost {

std::string ToString(const BatchShape& shape, std::string_view counted) {
  return absl::StrCat("(", shape.nodes, " nodes, ", shape.edges, " edges, ", shape.graphs, " ", AbslView(counted), ")");
}

}  // namespace permafrost
