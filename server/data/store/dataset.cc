#include "data/store/dataset.h"

#include <system_error>
#include <utility>

#include "base/status.h"

namespace permafrost::data {

absl::StatusOr<OpenedDataset> OpenDataset(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (std::filesystem::exists(directory / Graph::kFileName, ignored)) {
    PF_ASSIGN_OR_RETURN(auto graph, Graph::Open(directory));
    return OpenedDataset(std::move(graph));
  }
  PF_ASSIGN_OR_RETURN(auto set, GraphSet::Open(directory));
  return OpenedDataset(std::move(set));
}

}  // namespace permafrost::data
