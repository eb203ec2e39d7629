#include "train/tasks/layer_wise.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/status.h"
#include "data/store/graph.h"

namespace permafrost::train {
namespace {

// The most rows of a chunk. If one row has more edges than a chunk may have, it is a chunk of its own.
constexpr uint64_t kChunkRows = uint64_t{1} << 16;

// Returns a tensor that owns a copy of a column's values.
template <class T, class From>
at::Tensor CopyOf(const From* values, uint64_t count, at::ScalarType type) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(count)}, at::TensorOptions().dtype(type));
  std::copy(values, values + count, tensor.mutable_data_ptr<T>());
  return tensor;
}

// Returns the end of the chunk that begins at `begin`. It is never beyond `end_row`.
absl::StatusOr<uint64_t> ChunkEnd(const data::GraphView& view, uint64_t begin, uint64_t end_row, uint64_t most_edges) {
  const uint64_t most = std::min(end_row, begin + kChunkRows);
  if (!view.in.offsets.Touch(begin, most + 1)) return view.in.offsets.status();
  uint64_t end = begin + 1;
  while (end < most && view.in.offsets[end + 1] - view.in.offsets[begin] <= most_edges) ++end;
  return end;
}

// Copies `rows` to the rows of `all` from `begin` on. The first call allocates `all`.
void Put(const at::Tensor& rows, uint64_t begin, int64_t nodes, at::Tensor& all) {
  if (!all.defined()) all = at::empty({nodes, rows.size(1)}, rows.options());
  all.narrow(0, static_cast<int64_t>(begin), rows.size(0)).copy_(rows);
}

// Divides the rows among ranks; there must be at least as many rows as ranks. The ranks get about equally many rows
// and edges, and each gets at least one row. Returns the first row of each rank, followed by the number of rows.
// Errors: DataLoss.
absl::StatusOr<std::vector<int64_t>> DealRows(const data::GraphView& view, int64_t ranks) {
  const auto nodes = static_cast<int64_t>(view.nodes), edges = static_cast<int64_t>(view.in.neighbors.size());
  std::vector<int64_t> firsts{0};
  for (int64_t rank = 1; rank < ranks; ++rank) {
    const int64_t wanted = (nodes + edges) / ranks * rank;
    int64_t low = firsts.back() + 1, high = nodes - (ranks - rank);
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const auto row = static_cast<uint64_t>(middle);
      if (!view.in.offsets.Touch(row, row + 1)) return view.in.offsets.status();
      if (middle + static_cast<int64_t>(view.in.offsets[row]) < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    firsts.push_back(low);
  }
  firsts.push_back(nodes);
  return firsts;
}

}  // namespace

absl::StatusOr<nn::LayerWiseModel::InputRows> ReadFeatureRows(const data::Graph& graph, uint64_t begin, uint64_t end) {
  const data::Features& features = graph.view().node_features;
  const auto rows = static_cast<int64_t>(end - begin);
  nn::LayerWiseModel::InputRows input;
  if (const auto* dense = std::get_if<data::DenseFeatures>(&features)) {
    input.dense = at::empty({rows, dense->width}, at::kFloat);
    PF_RETURN_IF_ERROR(data::ReadRows(*dense, begin, end, input.dense.mutable_data_ptr<float>()));
  } else if (const auto* sparse = std::get_if<data::SparseFeatures>(&features)) {
    PF_ASSIGN_OR_RETURN(const data::SparseRows read, data::ReadRows(*sparse, begin, end));
    input.feature_offsets = CopyOf<int64_t>(read.offsets.data(), read.offsets.size(), at::kLong);
    input.feature_columns = CopyOf<int64_t>(read.columns.data(), read.columns.size(), at::kLong);
    if (!read.values.empty()) {
      input.feature_values = CopyOf<float>(read.values.data(), read.values.size(), at::kFloat);
    }
  }
  return input;
}

absl::StatusOr<nn::LayerWiseModel::Chunk> ReadInEdges(const data::Graph& graph, uint64_t begin, uint64_t end,
                                                      bool edge_weights, data::EdgeInputs edges) {
  const data::Adjacency& in = graph.view().in;
  nn::LayerWiseModel::Chunk chunk;
  chunk.first_row = static_cast<int64_t>(begin);
  if (!in.offsets.Touch(begin, end + 1)) return in.offsets.status();
  // The file may change while it is read. So the offsets are first copied, and the copy is then corrected so that
  // offsets rise and stay within the column.
  chunk.offsets = CopyOf<int64_t>(in.offsets.data() + begin, end - begin + 1, at::kLong);
  const std::span<int64_t> offsets(chunk.offsets.mutable_data_ptr<int64_t>(), end - begin + 1);
  const auto size = static_cast<int64_t>(in.neighbors.size());
  const int64_t first = std::clamp<int64_t>(offsets.front(), 0, size);
  int64_t last = 0;
  for (int64_t& offset : offsets) last = offset = std::clamp<int64_t>(offset - first, last, size - first);
  const auto from = static_cast<uint64_t>(first), to = static_cast<uint64_t>(first + last);
  if (!in.neighbors.Touch(from, to)) return in.neighbors.status();
  chunk.sources = CopyOf<int64_t>(in.neighbors.data() + from, to - from, at::kLong);
  const auto nodes = static_cast<int64_t>(graph.view().nodes);
  for (int64_t& source : std::span(chunk.sources.mutable_data_ptr<int64_t>(), to - from)) {
    source = std::min(source, nodes - 1);
  }
  if (edge_weights) {
    if (!in.weights.Touch(from, to)) return in.weights.status();
    chunk.edge_weights = CopyOf<float>(in.weights.data() + from, to - from, at::kFloat);
  }
  if (edges != data::EdgeInputs::kNone) {
    const data::EdgeRows rows(graph, edges);
    const at::TensorOptions type = rows.categorical() ? at::kLong : at::kFloat;
    chunk.edge_features = at::empty({last, rows.width()}, type);
    PF_RETURN_IF_ERROR(rows.categorical()
                           ? data::ReadEdgeRows(rows, from, to, chunk.edge_features.mutable_data_ptr<int64_t>())
                           : data::ReadEdgeRows(rows, from, to, chunk.edge_features.mutable_data_ptr<float>()));
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return chunk;
}

uint64_t MostChunkEdges(const data::GraphSummary& graph, const nn::LayerWiseModel& model,
                        const LayerWiseOptions& options) {
  if (options.edges == data::EdgeInputs::kNone) return kChunkEdges;
  const uint64_t row = data::EdgeRowBytes(graph, options.edges) / sizeof(float);
  int64_t widest = std::max(options.hidden_channels, static_cast<int64_t>(row));
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    widest = std::max(widest, model.projected_width(layer));
  }
  return std::min(kChunkEdges, kChunkEdgeValues / static_cast<uint64_t>(widest));
}

absl::StatusOr<at::Tensor> PredictLayerWise(const data::Graph& graph, nn::LayerWiseModel& model,
                                            const LayerWiseOptions& options, const std::function<bool()>& keep_going) {
  const at::NoGradGuard no_grad;
  const data::GraphView& view = graph.view();
  const auto nodes = static_cast<int64_t>(view.nodes);
  const uint64_t most_edges = MostChunkEdges(graph.summary(), model, options);
  // With fewer rows than ranks, every rank computes all rows.
  collective::Group* const group = options.group != nullptr && options.group->size() <= nodes ? options.group : nullptr;
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, DealRows(view, group == nullptr ? 1 : group->size()));
  const auto rank = static_cast<size_t>(group == nullptr ? 0 : group->rank());
  const auto first_row = static_cast<uint64_t>(firsts[rank]), end_row = static_cast<uint64_t>(firsts[rank + 1]);
  const auto share = [&](at::Tensor& rows) {
    if (group == nullptr) return;
    // Ranks may arrive minutes apart, and an exchange waits only as long as in a step.
    group->Meet();
    group->ShareRows(rows, firsts);
  };
  std::vector<uint64_t> ends;  // ends of the chunks of this rank
  for (uint64_t begin = first_row; begin < end_row; begin = ends.back()) {
    PF_ASSIGN_OR_RETURN(const uint64_t end, ChunkEnd(view, begin, end_row, most_edges));
    ends.push_back(end);
  }
  const auto on_device = [&](const at::Tensor& t) { return t.defined() ? t.to(options.device) : t; };
  const auto floats = at::TensorOptions().dtype(at::kFloat).device(options.device);
  at::Tensor degrees;  // undefined for models that do not use them
  const auto read_edges = [&](uint64_t begin, uint64_t end) -> absl::StatusOr<nn::LayerWiseModel::Chunk> {
    PF_ASSIGN_OR_RETURN(nn::LayerWiseModel::Chunk chunk,
                        ReadInEdges(graph, begin, end, options.edge_weights, options.edges));
    for (at::Tensor* t : {&chunk.offsets, &chunk.sources, &chunk.edge_weights, &chunk.edge_features})
      *t = on_device(*t);
    chunk.inverse_sqrt_degrees = degrees;
    return chunk;
  };
  uint64_t begin = first_row;
  for (const uint64_t end : ends) {
    if (!keep_going()) return absl::CancelledError("evaluation stopped");
    PF_ASSIGN_OR_RETURN(const nn::LayerWiseModel::Chunk chunk, read_edges(begin, end));
    const at::Tensor own = model.InverseSqrtDegrees(chunk);
    if (!own.defined()) break;
    if (!degrees.defined()) degrees = at::empty({nodes}, floats);
    degrees.narrow(0, chunk.first_row, own.size(0)).copy_(own);
    begin = end;
  }
  if (degrees.defined()) share(degrees);
  at::Tensor layer_input;  // [nodes, hidden]; undefined for layer 0, which reads the features
  at::Tensor joined;       // outputs of all layers so far, if the model joins them
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    at::Tensor projected = at::empty({nodes, model.projected_width(layer)}, floats);
    begin = first_row;
    for (const uint64_t end : ends) {
      if (!keep_going()) return absl::CancelledError("evaluation stopped");
      const auto first = static_cast<int64_t>(begin), rows = static_cast<int64_t>(end - begin);
      nn::LayerWiseModel::InputRows input;
      if (layer_input.defined()) {
        input.dense = layer_input.narrow(0, first, rows);
      } else {
        PF_ASSIGN_OR_RETURN(input, ReadFeatureRows(graph, begin, end));
        for (at::Tensor* t : {&input.dense, &input.feature_offsets, &input.feature_columns, &input.feature_values})
          *t = on_device(*t);
      }
      projected.narrow(0, first, rows).copy_(model.Project(layer, input));
      begin = end;
    }
    // A layer reads the projected rows of neighbours, which other ranks may have computed. Its other inputs are rows
    // of this rank's own nodes.
    share(projected);
    at::Tensor output, joined_output;
    begin = first_row;
    for (const uint64_t end : ends) {
      if (!keep_going()) return absl::CancelledError("evaluation stopped");
      PF_ASSIGN_OR_RETURN(const nn::LayerWiseModel::Chunk chunk, read_edges(begin, end));
      const auto of_chunk = [&](const at::Tensor& rows) {
        return rows.defined() ? rows.narrow(0, static_cast<int64_t>(begin), chunk.offsets.size(0) - 1) : rows;
      };
      const at::Tensor made = model.Combine(layer, projected, chunk, of_chunk(layer_input));
      Put(made, begin, nodes, output);
      if (model.joins()) Put(model.JoinOutput(layer, of_chunk(joined), made), begin, nodes, joined_output);
      begin = end;
    }
    layer_input = output;
    joined = joined_output;
  }
  at::Tensor predictions = model.joins() ? joined : layer_input;
  share(predictions);
  return predictions.to(at::kCPU);
}

}  // namespace permafrost::train
