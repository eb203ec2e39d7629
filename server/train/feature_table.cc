#include "train/feature_table.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "base/status.h"
#include "train/layer_wise.h"

namespace permafrost::train {
namespace {

// Reading a table takes so much of the host's memory.
constexpr uint64_t kPieceBytes = 64 << 20;

uint64_t RowBytes(const data::GraphSummary& graph) {
  return sizeof(float) * static_cast<uint64_t>(graph.node_features.width);
}

}  // namespace

uint64_t FeatureTableBytes(const data::GraphSummary& graph) {
  return (static_cast<uint64_t>(graph.nodes) + 1) * RowBytes(graph);
}

absl::StatusOr<at::Tensor> ReadFeatureTable(const data::Graph& graph, c10::Device device,
                                            const std::function<bool()>& keep_going) {
  const uint64_t nodes = graph.view().nodes;
  const data::GraphSummary& summary = graph.summary();
  at::Tensor table;
  try {
    table = at::empty({static_cast<int64_t>(nodes) + 1, summary.node_features.width},
                      at::TensorOptions().dtype(at::kFloat).device(device));
  } catch (const c10::OutOfMemoryError&) {
    return at::Tensor();
  }
  const uint64_t piece = std::max<uint64_t>(1, kPieceBytes / std::max<uint64_t>(1, RowBytes(summary)));
  for (uint64_t begin = 0; begin < nodes; begin += piece) {
    if (!keep_going()) return absl::CancelledError("stopped while features were read");
    const uint64_t end = std::min(begin + piece, nodes);
    PF_ASSIGN_OR_RETURN(const nn::NodeModel::InputRows rows, ReadFeatureRows(graph, begin, end));
    table.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(end - begin)).copy_(rows.dense);
  }
  table.narrow(0, static_cast<int64_t>(nodes), 1).zero_();
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return table;
}

}  // namespace permafrost::train
