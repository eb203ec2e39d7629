#include "data/sampling/adjacency_reads.h"

#include "base/status.h"

namespace permafrost::data {

absl::Status StatusOf(const ReadFaults& faults, const Adjacency& adjacency) {
  if (faults.damaged) {
    PF_RETURN_IF_ERROR(adjacency.offsets.status());
    PF_RETURN_IF_ERROR(adjacency.neighbors.status());
    PF_RETURN_IF_ERROR(adjacency.weights.status());
    return absl::DataLossError("the graph's edges: a block that is damaged was read");
  }
  if (faults.out_of_range) {
    return absl::DataLossError(
        "the graph's edges: a neighbour was read that is no node: the file changed while in use");
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
