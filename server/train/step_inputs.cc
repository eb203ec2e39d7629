#include "train/step_inputs.h"

#include <ATen/ATen.h>

#include <vector>

namespace permafrost::train {
namespace {

// Places among StepInputs::tensors.
enum Place : size_t {
  kNodeFeatures,
  kEdgeFeatures,
  kEdgeSource,
  kEdgeTarget,
  kGraphOfNode,
  kLabels,
  kRealNodes,
  kRealGraphs,
  kStep,
  kPlaces
};

template <class T>
at::Tensor View(const T* values, std::vector<int64_t> sizes) {
  // from_blob takes a mutable pointer; the step only reads its inputs, and a capture checks that.
  return at::from_blob(const_cast<T*>(values), sizes, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

at::Tensor Features(const AlignedVector<int64_t>& ints, const AlignedVector<float>& floats,
                    const data::FeatureSummary& summary, int64_t rows) {
  switch (summary.type) {
    case data::DataType::kInt32:
      return View(ints.data(), {rows, summary.width});
    case data::DataType::kFloat32:
      return View(floats.data(), {rows, summary.width});
    default:  // a set of small graphs has no others
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
  t[kEdgeSource] = View(host.edge_source.data(), {shape.edges});
  t[kEdgeTarget] = View(host.edge_target.data(), {shape.edges});
  t[kGraphOfNode] = View(host.graph_of_node.data(), {shape.nodes});
  t[kLabels] = View(host.labels.data(), {shape.graphs, summary.num_targets});
  t[kRealNodes] = View(&host.real.nodes, {1});
  t[kRealGraphs] = View(&host.real.graphs, {1});
  t[kStep] = View(&step, {1});
  return inputs;
}

nn::GraphSetBatch BatchOf(const graphcache::StepInputs& inputs) {
  const auto& t = inputs.tensors;
  return {.padded_graphs = t.at(kLabels).size(0),
          .node_features = t[kNodeFeatures],
          .edge_features = t[kEdgeFeatures],
          .edge_source = t[kEdgeSource],
          .edge_target = t[kEdgeTarget],
          .graph_of_node = t[kGraphOfNode],
          .labels = t[kLabels],
          .real_nodes = t[kRealNodes],
          .real_graphs = t[kRealGraphs],
          .step = t[kStep]};
}

}  // namespace permafrost::train
