#include "train/device_batch.h"

#include <ATen/ATen.h>

#include <vector>

namespace permafrost::train {
namespace {

template <class T>
at::Tensor View(const std::vector<T>& values, std::vector<int64_t> sizes, c10::Device device) {
  // from_blob takes a mutable pointer; the step only reads its inputs.
  const at::Tensor view = at::from_blob(const_cast<T*>(values.data()), sizes,
                                        at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
  return device.is_cpu() ? view : view.to(device);
}

at::Tensor Features(const std::vector<int64_t>& ints, const std::vector<float>& floats,
                    const data::FeatureSummary& summary, int64_t rows, c10::Device device) {
  switch (summary.type) {
    case data::DataType::kInt32:
      return View(ints, {rows, summary.width}, device);
    case data::DataType::kFloat32:
      return View(floats, {rows, summary.width}, device);
    case data::DataType::kNone:
      break;
  }
  return {};
}

}  // namespace

nn::GraphBatch ToDevice(const data::PaddedBatch& host, const data::GraphSetSummary& summary, c10::Device device) {
  const data::BatchShape& shape = host.padded;
  nn::GraphBatch batch;
  batch.padded_graphs = shape.graphs;
  batch.node_features = Features(host.node_ints, host.node_floats, summary.node_features, shape.nodes, device);
  batch.edge_features = Features(host.edge_ints, host.edge_floats, summary.edge_features, shape.edges, device);
  batch.edge_source = View(host.edge_source, {shape.edges}, device);
  batch.edge_target = View(host.edge_target, {shape.edges}, device);
  batch.graph_of_node = View(host.graph_of_node, {shape.nodes}, device);
  batch.labels = View(host.labels, {shape.graphs, summary.num_targets}, device);
  batch.real_nodes = at::full({1}, host.real.nodes, at::TensorOptions().device(device).dtype(at::kLong));
  return batch;
}

}  // namespace permafrost::train
