// The models of either level, as those who train them see them. To add one, write its convolution
// (nn/models/convolution.h) and its torch-free row (spec/model.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/step.h"
#include "nn/models/parts.h"
#include "nn/ops/segment_ops.h"
#include "nn/tensor_set.h"
#include "spec/model.h"

namespace permafrost::nn {

// The computation graph of one step of a node-level model: a sampled, padded block (data/batching/block_batch.h), or a
// whole graph.
struct NodeBlock {
  // [L + 1] rows whose representation is needed at each depth, from the last layer's output (the seeds) to the input:
  // row_ends[L] == N. Layer l = 1..L makes rows [0, row_ends[L - l]) from rows [0, row_ends[L - l + 1]). In a whole
  // graph all are N. [L] where the first layer's sums are made already: row_ends[L - 1] == N.
  std::vector<int64_t> row_ends;
  // [N, F] float32; with L row_ends [N, 2 * F], of each row the mean of its neighbours' features and then its own; or
  // undefined, and the rows as CSR over columns 0..F-1:
  at::Tensor features;
  at::Tensor feature_offsets;  // [N + 1] int64
  at::Tensor feature_columns;  // [entries] int64
  at::Tensor feature_values;   // [entries] float32; undefined: all are 1
  at::Tensor positions;        // [N, columns] float32, which programs read; undefined: none are read
  // In-edges as CSR: of row r they come from rows sources[offsets[r] .. offsets[r + 1]), for r below the last row_ends
  // but one. `sources` may be longer than the last offset: the rest is padding that no row reaches.
  at::Tensor offsets;  // [row_ends[row_ends.size() - 2] + 1] int64
  at::Tensor sources;  // [E] int64
  // [E] int64, rising: where each edge ends. Only blocks for programs have it. They have no offsets, and their row_ends
  // are two: the seeds and N.
  at::Tensor edge_targets;
  at::Tensor edge_weights;  // [E] float32; undefined: all are 1
  // [E, columns] float32, or int64 categories; undefined: the model reads none. Any in range in padding.
  at::Tensor edge_features;
  // The transpose of all rows, where it is known beforehand; undefined: a step that needs it makes it.
  CsrTranspose transpose;
  at::Tensor labels;  // [row_ends[0], targets] float32, NaN where missing and in padding rows
  // [N] int64: place of each row among the real rows, below 0 in padding; what stands for the row where dropout draws
  // its masks, so that padding between the segments shifts none, and which rows batch norm sees. Undefined: its own
  // place.
  at::Tensor row_keys;
  at::Tensor step;  // [1] int64: optimizer steps done; which masks dropout draws
  NodePairs pairs;  // of the first row_ends[0] rows, between which links are predicted; undefined: none are
};

struct NodeModelOptions {
  spec::ModelOptions model;  // of level kNode
  int64_t in_channels = 0;
  int64_t num_outputs = 0;
  // Above 0: the number of columns of the sparse features. Each stands for a trained row of "embedding.weight"
  // [columns, in_channels], and the input is the sum of a node's rows. If each node has a column of its own, this is
  // torch.nn.Embedding.
  int64_t embedded_columns = 0;
  // For models that read features of edges (ModelTraits::edges): categories are embedded, "edge_encoder.*", as in sets;
  // floats are read as they are. Neither: it reads none.
  EncoderInput edge = {};
};

// Node-level models: one prediction for each node that a block begins with.
// Threads: the device thread. Owns its tensors.
class NodeModel {
 public:
  virtual ~NodeModel() = default;

  // Returns [row_ends[0], num_outputs] logits; a program that scores pairs itself returns [P, 1]. Dropout only in
  // kTrain. GCN takes the degrees of its normalisation from the block's edges, with a self-loop of weight 1 for each
  // row that has none, as PyG does on a sampled subgraph (a row beyond row_ends[L - 1] has its self-loop alone).
  virtual at::Tensor Forward(const NodeBlock& block, Mode mode) = 0;
  // Hands over the scalar loss that the last Forward computed. Undefined: the model has none, and the job's loss is
  // computed from the prediction.
  virtual at::Tensor TakeLoss() { return {}; }

  virtual TensorSet& tensors() = 0;
  // For `__metadata__` of the weights file, as JSON.
  virtual std::string Describe() const = 0;
};

// Our own node-level models are built layer by layer as those of torch_geometric.nn.models are (num_layers
// convolutions, a norm, relu and dropout between them, the last one giving the outputs), under the same parameter
// names. So their layers can be run one by one, too.
class LayerWiseModel : public NodeModel {
 public:
  // Layer-wise inference of a whole graph, which a caller does chunk by chunk, one layer after the other, without
  // gradients:
  //   projected = Project(l, rows of the layer's input)             for every chunk of rows
  //   output    = Combine(l, projected of all rows, chunk)          for every chunk of rows
  // The output of layer l (0-based) is the input of layer l + 1; that of the last layer, or what JoinOutput makes of
  // all, equals Forward's, in kEval, on the whole graph as one block, to float tolerance.
  struct InputRows {
    at::Tensor dense;                                             // [n, in] float32; or undefined, and
    at::Tensor feature_offsets, feature_columns, feature_values;  // as in NodeBlock (the first layer only)
  };
  // [n, projected_width(layer)]; where that is the input's width, `rows.dense` itself.
  virtual at::Tensor Project(int64_t layer, const InputRows& rows) = 0;
  virtual int64_t projected_width(int64_t layer) const = 0;
  struct Chunk {
    int64_t first_row = 0;            // of the chunk, among all rows
    at::Tensor offsets;               // [n + 1] int64, beginning at 0: in-edges of the chunk's rows
    at::Tensor sources;               // [edges] int64, among all rows
    at::Tensor edge_weights;          // [edges] or undefined
    at::Tensor edge_features;         // [edges, columns] or undefined, as in NodeBlock
    at::Tensor edge_code;             // of a model's own making; undefined
    at::Tensor inverse_sqrt_degrees;  // [all rows] float32 of GCN's normalisation, see InverseSqrtDegrees
  };
  // [n] float32 for the chunk's own rows, of which inverse_sqrt_degrees is made before the first Combine; undefined
  // where the model has no use for it. GCN: degree^-1/2, 0 where the degree is not positive; the degree is 1 + the sum
  // of the in-edges' weights, less 1 for each self-loop among them. Reads first_row and the edges.
  virtual at::Tensor InverseSqrtDegrees(const Chunk& chunk) const = 0;
  // projected: [all rows, projected_width(layer)]; input: the layer's, of the chunk's rows (that of the first layer is
  // not read). Returns [n, hidden or num_outputs].
  virtual at::Tensor Combine(int64_t layer, const at::Tensor& projected, const Chunk& chunk,
                             const at::Tensor& input) = 0;
  // Returns whether predictions are made of the outputs of all layers; else they are the last layer's.
  virtual bool joins() const = 0;
  // Where they are: returns what is kept of the outputs of layers 0..layer of some rows. output: of this layer; before:
  // what was kept until then, undefined for layer 0. After the last layer [n, num_outputs]: the predictions.
  virtual at::Tensor JoinOutput(int64_t layer, const at::Tensor& before, const at::Tensor& output) const = 0;
};

// One mini-batch of small graphs on the device, in the padded form: real rows first, then padding.
struct GraphSetBatch {
  int64_t padded_graphs = 0;
  // [N, columns] int64 or float32, undefined where the set has no such features.
  at::Tensor node_features;
  at::Tensor edge_features;
  at::Tensor positions;      // [N, columns] float32, undefined likewise; programs read them
  at::Tensor edge_source;    // [E] int64, rows of this batch
  at::Tensor edge_target;    // [E] int64, rising
  at::Tensor graph_of_node;  // [N] int64; padding nodes belong to the last graph
  at::Tensor labels;         // [G, targets] float32, NaN where missing and in padding graphs
  // Tensors, so that one executable serves many batches and steps.
  at::Tensor real_nodes;   // [1] int64: rows that batch norm may see
  at::Tensor real_graphs;  // [1] int64: graphs that the virtual node's batch norm may see
  at::Tensor step;         // [1] int64: optimizer steps done; which masks dropout draws
};

struct GraphModelOptions {
  spec::ModelOptions model;
  EncoderInput node, edge;
  int64_t num_targets = 1;      // outputs a graph: targets, or classes of cross-entropy
  int64_t max_graph_nodes = 0;  // of the dataset's largest graph
  int64_t position_columns = 0;
};

// Graph-level models: one prediction for each graph of a batch of small graphs.
// Threads: the device thread. Owns its tensors.
class GraphModel {
 public:
  virtual ~GraphModel() = default;
  // Returns [padded graphs, num_targets]. kTrain also updates what the model keeps beside its parameters, such as
  // running statistics.
  virtual at::Tensor Forward(const GraphSetBatch& batch, Mode mode) = 0;
  // As NodeModel::TakeLoss.
  virtual at::Tensor TakeLoss() { return {}; }
  virtual TensorSet& tensors() = 0;
  // For `__metadata__` of the weights file: what is needed to build the equal module, as JSON.
  virtual std::string Describe() const = 0;
};

// Rows of one step, without padding, by which its cost is estimated before it exists.
struct StepRows {
  // [num_layers + 1] rows whose representation is needed at each depth, from the outputs to the inputs, as
  // NodeBlock::row_ends. For a whole graph, and for a batch of small graphs, each is the number of its nodes.
  std::vector<double> nodes;
  double edges = 0;
  double graphs = 0;  // rows that are predicted for
};

// Counts of values (4 bytes each).
struct ModelCost {
  double parameters = 0;
  // Alive together at the worst moment of an eager training step: what the backward pass has saved and what it makes,
  // without the batch itself and the gradients of parameters.
  double activations = 0;
};

// Weights are drawn on the CPU from `seed` (equal on every device), then moved. Throws c10::Error for an architecture
// of the other level.
std::unique_ptr<GraphModel> MakeGraphModel(const GraphModelOptions& options, uint64_t seed, at::Device device);
std::unique_ptr<LayerWiseModel> MakeNodeModel(const NodeModelOptions& options, uint64_t seed, at::Device device);

// Returns what the model and one training step of it cost. Throws as above.
ModelCost CostOf(const GraphModelOptions& options, const StepRows& rows);
ModelCost CostOf(const NodeModelOptions& options, const StepRows& rows);

}  // namespace permafrost::nn
