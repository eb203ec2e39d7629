#include "train/tasks/step_inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "data/batching/row_gather.h"

namespace permafrost::train {
namespace {

// Indices of a block's tensors in StepInputs::tensors. The tensors of row keys come last, one for each depth. Their
// sizes are the block's row_ends.
enum BlockPlace : size_t {
  kFeatures,
  kMoreFeatures,
  kFeaturePlaces,
  kFeatureRows,
  kFeatureOffsets,
  kFeatureColumns,
  kFeatureValues,
  kNeighbors,
  kOffsets,
  kSources,
  kEdgeTargets,
  kEdgeWeights,
  kBlockEdgeFeatures,
  kBlockPositions,
  kOutOffsets,
  kOutRows,
  kOutEdges,
  kSeedLabels,
  kBlockStep,
  kPairSources,
  kPairTargets,
  kRowKeys
};

template <class T>
at::Tensor View(const T* values, std::vector<int64_t> sizes) {
  // from_blob takes a mutable pointer; the step only reads its inputs, and a capture checks that.
  return at::from_blob(const_cast<T*>(values), sizes, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

template <class T>
at::Tensor View(const AlignedVector<T>& values, std::vector<int64_t> sizes) {
  return View(values.data(), std::move(sizes));
}

template <class T>
at::Tensor ViewAll(const AlignedVector<T>& values) {
  if (values.empty()) return {};
  return View(values, {static_cast<int64_t>(values.size())});
}

}  // namespace

const AlignedVector<int64_t>& RowKeys::For(const data::BlockSizes& real, const data::BlockSizes& padded) {
  if (real == real_ && padded == padded_) return keys_;
  real_ = real;
  padded_ = padded;
  keys_.assign(static_cast<size_t>(padded.total_nodes()), -1);
  data::SegmentBounds from, to;
  data::SetBounds(real.nodes, from);
  data::SetBounds(padded.nodes, to);
  for (size_t h = 0; h < padded.nodes.size(); ++h) {
    std::iota(keys_.begin() + to[h], keys_.begin() + to[h] + real.nodes[h], from[h]);
  }
  return keys_;
}

void FlatBlock::Set(const data::BlockBatch& host, int64_t feature_columns) {
  width_ = feature_columns;
  // The target of a padding edge is the last row, which is padding.
  edge_targets_.assign(host.sources.size(), std::max<int64_t>(host.padded.total_nodes() - 1, 0));
  for (size_t row = 0; row + 1 < host.offsets.size(); ++row) {
    std::fill(edge_targets_.begin() + host.offsets[row], edge_targets_.begin() + host.offsets[row + 1],
              static_cast<int64_t>(row));
  }
  features_.clear();
  if (!host.feature_rows.empty() || host.feature_offsets.empty()) return;
  const auto width = static_cast<size_t>(width_);
  features_.resize(static_cast<size_t>(host.padded.total_nodes()) * width);
  std::ranges::fill(features_, 0.0f);
  for (size_t row = 0; row + 1 < host.feature_offsets.size(); ++row) {
    const auto begin = static_cast<size_t>(host.feature_offsets[row]),
               end = static_cast<size_t>(host.feature_offsets[row + 1]);
    for (size_t i = begin; i < end; ++i) {
      const float value = host.feature_values.empty() ? 1.0f : host.feature_values[i];
      features_[row * width + static_cast<size_t>(host.feature_columns[i])] += value;
    }
  }
}

graphcache::StepInputs MakeInputs(const data::BlockBatch& host, const AlignedVector<int64_t>& keys, int64_t targets,
                                  const int64_t& step, const FeatureTable& features, const FlatBlock* flat) {
  const data::BlockSizes& sizes = host.padded;
  nn::NodeBlock block;
  const bool elsewhere = !host.feature_rows.empty(), sparse = !elsewhere && !host.feature_offsets.empty();
  if (elsewhere) {
    block.features = features.rows;
  } else if (sparse && flat != nullptr) {
    block.features = View(flat->features(), {sizes.total_nodes(), flat->width()});
  } else if (sparse) {
    block.feature_offsets = ViewAll(host.feature_offsets);
    block.feature_columns = View(host.feature_columns, {std::ssize(host.feature_columns)});
    block.feature_values = ViewAll(host.feature_values);
  } else {
    const int64_t rows = std::max<int64_t>(1, sizes.total_nodes());
    block.features = View(host.features, {sizes.total_nodes(), std::ssize(host.features) / rows});
  }
  if (flat != nullptr) {
    block.edge_targets = View(flat->edge_targets(), {sizes.edges});
  } else {
    block.offsets = ViewAll(host.offsets);
  }
  block.sources = View(host.sources, {sizes.edges});
  block.edge_weights = ViewAll(host.edge_weights);
  // A program needs a tensor of weights even if there are no edges.
  if (flat != nullptr && sizes.edges == 0) block.edge_weights = at::empty({0}, at::kFloat);
  if (host.edge_int_columns > 0) {
    block.edge_features = View(host.edge_ints, {sizes.edges, host.edge_int_columns});
  } else if (host.edge_float_columns > 0) {
    block.edge_features = View(host.edge_floats, {sizes.edges, host.edge_float_columns});
  }
  if (!host.positions.empty()) {
    block.positions = View(host.positions, {sizes.total_nodes(), std::ssize(host.positions) / sizes.total_nodes()});
  }
  block.labels = View(host.labels, {sizes.nodes.front(), targets});
  block.row_keys = ViewAll(keys);
  data::SegmentBounds bounds;
  data::SetBounds(sizes.nodes, bounds);
  block.row_ends.assign(bounds.begin() + 1, bounds.end());
  if (flat != nullptr) block.row_ends = {block.row_ends.front(), block.row_ends.back()};
  block.step = StepView(step);
  graphcache::StepInputs inputs = MakeInputs(block);
  if (elsewhere) {
    inputs.tensors[kFeatureRows] = ViewAll(host.feature_rows);
    inputs.resident = {kFeatures};
    if (!host.feature_offsets.empty()) {
      // PyTorch cannot index by uint32. The values fit int32, since means are computed only from a table whose row
      // numbers fit int32.
      static_assert(sizeof(data::NodeId) == sizeof(int32_t));
      inputs.tensors[kFeatureOffsets] = ViewAll(host.feature_offsets);
      inputs.tensors[kNeighbors] =
          View(reinterpret_cast<const int32_t*>(host.neighbors.data()), {std::ssize(host.neighbors)});
    }
    if (features.rest.defined()) {
      inputs.tensors[kMoreFeatures] = features.rest;
      inputs.tensors[kFeaturePlaces] = features.places;
      inputs.resident.insert(inputs.resident.end(), {kMoreFeatures, kFeaturePlaces});
    }
  }
  return inputs;
}

graphcache::StepInputs MakeInputs(const nn::NodeBlock& block) {
  graphcache::StepInputs inputs;
  auto& t = inputs.tensors;
  t.resize(kRowKeys);
  t[kFeatures] = block.features;
  t[kFeatureOffsets] = block.feature_offsets;
  t[kFeatureColumns] = block.feature_columns;
  t[kFeatureValues] = block.feature_values;
  t[kOffsets] = block.offsets;
  t[kSources] = block.sources;
  t[kEdgeTargets] = block.edge_targets;
  t[kEdgeWeights] = block.edge_weights;
  t[kBlockEdgeFeatures] = block.edge_features;
  t[kBlockPositions] = block.positions;
  t[kOutOffsets] = block.transpose.offsets;
  t[kOutRows] = block.transpose.rows;
  t[kOutEdges] = block.transpose.edges;
  t[kSeedLabels] = block.labels;
  t[kBlockStep] = block.step;
  t[kPairSources] = block.pairs.sources;
  t[kPairTargets] = block.pairs.targets;
  for (const int64_t rows : block.row_ends) t.push_back(block.row_keys.narrow(0, 0, rows));
  return inputs;
}

void SetPairs(const data::LinkBatch& batch, graphcache::StepInputs& inputs) {
  auto& t = inputs.tensors;
  t.at(kPairSources) = ViewAll(batch.sources);
  t[kPairTargets] = ViewAll(batch.targets);
  t[kSeedLabels] = View(batch.labels, {std::ssize(batch.labels), 1});
}

at::Tensor StepView(const int64_t& step) { return at::from_blob(const_cast<int64_t*>(&step), {1}, at::kLong); }

void MarkResident(graphcache::StepInputs& inputs) {
  for (size_t place = 0; place < inputs.tensors.size(); ++place) {
    const bool of_batch = place == kSeedLabels || place == kBlockStep || place == kPairSources || place == kPairTargets;
    if (!of_batch && inputs.tensors[place].defined()) inputs.resident.push_back(place);
  }
}

nn::NodeBlock NodeBlockOf(const graphcache::StepInputs& inputs) {
  const auto& t = inputs.tensors;
  nn::NodeBlock block{.row_ends = {},
                      .features = t.at(kFeatures),
                      .feature_offsets = t[kFeatureOffsets],
                      .feature_columns = t[kFeatureColumns],
                      .feature_values = t[kFeatureValues],
                      .positions = t[kBlockPositions],
                      .offsets = t[kOffsets],
                      .sources = t[kSources],
                      .edge_targets = t[kEdgeTargets],
                      .edge_weights = t[kEdgeWeights],
                      .edge_features = t[kBlockEdgeFeatures],
                      .transpose = {t[kOutOffsets], t[kOutRows], t[kOutEdges]},
                      .labels = t[kSeedLabels],
                      .row_keys = t.back(),
                      .step = t[kBlockStep],
                      .pairs = {.sources = t[kPairSources], .targets = t[kPairTargets]}};
  for (size_t depth = kRowKeys; depth < t.size(); ++depth) block.row_ends.push_back(t[depth].size(0));
  const at::Tensor& rows = t[kFeatureRows];
  if (!rows.defined()) return block;
  const FeatureTable table{t[kFeatures], t[kMoreFeatures], t[kFeaturePlaces]};
  const at::Tensor& neighbors = t[kNeighbors];
  block.features = neighbors.defined() ? GatherMeans(table, rows, std::exchange(block.feature_offsets, {}), neighbors)
                                       : GatherRows(table, rows);
  return block;
}

namespace {

// Indices of the tensors of a batch of small graphs in StepInputs::tensors.
enum Place : size_t {
  kNodeFeatures,
  kEdgeFeatures,
  kPositions,
  kEdgeSource,
  kEdgeTarget,
  kGraphOfNode,
  kLabels,
  kRealNodes,
  kRealGraphs,
  kStep,
  kNodeKeys,
  kGraphKeys,
  kPlaces
};

at::Tensor Features(const AlignedVector<int64_t>& ints, const AlignedVector<float>& floats,
                    const data::FeatureSummary& summary, int64_t rows) {
  switch (summary.type) {
    case data::DataType::kInt32:
      return View(ints.data(), {rows, summary.width});
    case data::DataType::kFloat32:
      return View(floats.data(), {rows, summary.width});
    default:  // a set of small graphs has no other types
      break;
  }
  return {};
}

}  // namespace

graphcache::StepInputs MakeInputs(const data::PaddedBatch& host, const data::GraphSetSummary& summary,
                                  const int64_t& step) {
  const BatchShape& shape = host.padded;
  graphcache::StepInputs inputs;
  auto& t = inputs.tensors;
  t.resize(kPlaces);
  t[kNodeFeatures] = Features(host.node_ints, host.node_floats, summary.node_features, shape.nodes);
  t[kEdgeFeatures] = Features(host.edge_ints, host.edge_floats, summary.edge_features, shape.edges);
  if (!host.positions.empty()) t[kPositions] = View(host.positions, {shape.nodes, summary.position_columns});
  t[kEdgeSource] = View(host.edge_source.data(), {shape.edges});
  t[kEdgeTarget] = View(host.edge_target.data(), {shape.edges});
  t[kGraphOfNode] = View(host.graph_of_node.data(), {shape.nodes});
  t[kLabels] = View(host.labels.data(), {shape.graphs, summary.num_targets});
  t[kRealNodes] = View(&host.real.nodes, {1});
  t[kRealGraphs] = View(&host.real.graphs, {1});
  t[kStep] = View(&step, {1});
  if (!host.node_keys.empty()) {
    t[kNodeKeys] = View(host.node_keys.data(), {shape.nodes});
    t[kGraphKeys] = View(host.graph_keys.data(), {shape.graphs});
  }
  return inputs;
}

nn::GraphSetBatch BatchOf(const graphcache::StepInputs& inputs) {
  const auto& t = inputs.tensors;
  return {.padded_graphs = t.at(kLabels).size(0),
          .node_features = t[kNodeFeatures],
          .edge_features = t[kEdgeFeatures],
          .positions = t[kPositions],
          .edge_source = t[kEdgeSource],
          .edge_target = t[kEdgeTarget],
          .graph_of_node = t[kGraphOfNode],
          .labels = t[kLabels],
          .real_nodes = t[kRealNodes],
          .real_graphs = t[kRealGraphs],
          .step = t[kStep],
          .node_keys = t[kNodeKeys],
          .graph_keys = t[kGraphKeys]};
}

}  // namespace permafrost::train
