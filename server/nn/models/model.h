// The interface of the node-level and graph-level models for the code that trains them. To add a model, write its
// convolution (nn/models/convolution.h) and its row in the torch-free table (spec/model.h).
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
  // [L + 1]: for each depth, the number of rows whose representation is needed. Entry 0 is for the last layer's
  // output (the seeds), entry L for the input. So row_ends[L] == N. Layer l = 1..L computes rows [0, row_ends[L - l])
  // from rows [0, row_ends[L - l + 1]). In a whole graph all entries are N. If the sums of the first layer are
  // precomputed, there are only L entries, and row_ends[L - 1] == N.
  std::vector<int64_t> row_ends;
  // [N, F] float32. If row_ends has L entries, features is [N, 2 * F]: each row holds the mean of its neighbours'
  // features, then its own features. If features is undefined, the CSR rows below hold the features, over columns
  // 0..F-1.
  at::Tensor features;
  at::Tensor feature_offsets;  // [N + 1] int64
  at::Tensor feature_columns;  // [entries] int64
  at::Tensor feature_values;   // [entries] float32; undefined: all are 1
  at::Tensor positions;        // [N, columns] float32, which programs read; undefined: the model reads none
  // In-edges as CSR: the in-edges of row r come from rows sources[offsets[r] .. offsets[r + 1]). Only the first
  // row_ends[row_ends.size() - 2] rows have in-edges. `sources` may be longer than the last offset; the entries
  // beyond it are padding that no row reaches.
  at::Tensor offsets;  // [row_ends[row_ends.size() - 2] + 1] int64
  at::Tensor sources;  // [E] int64
  // [E] int64, rising: the target of each edge. Only blocks for programs have edge targets. A block for a program has
  // no offsets, and its row_ends has two entries: the number of seeds, and N.
  at::Tensor edge_targets;
  at::Tensor edge_weights;  // [E] float32; undefined: all are 1
  // [E, columns] float32, or int64 categories; undefined: the model reads none. Padding rows may hold any values in
  // range.
  at::Tensor edge_features;
  // The transpose of the offsets and sources of all rows, if it is known beforehand. If it is undefined, a step that
  // needs the transpose computes it.
  CsrTranspose transpose;
  at::Tensor labels;  // [row_ends[0], targets] float32, NaN where missing and in padding rows
  // [N] int64: the position of each row among the real rows, negative in padding. Dropout draws a row's mask by this
  // key, so that padding rows before the row do not change its mask. Batch norm sees the rows whose key is not
  // negative. If row_keys is undefined, the key is the row's own position.
  at::Tensor row_keys;
  at::Tensor step;  // [1] int64: optimizer steps done, which select dropout's masks
  NodePairs pairs;  // node pairs to predict links for, among the first row_ends[0] rows; undefined: none
};

struct NodeModelOptions {
  spec::ModelOptions model;  // of level kNode
  int64_t in_channels = 0;
  int64_t num_outputs = 0;
  // The number of columns of the sparse features if they are embedded, else 0. Each column has a trained row in
  // "embedding.weight" [columns, in_channels], and the input is the sum of a node's rows. If each node has a column
  // of its own, this is torch.nn.Embedding.
  int64_t embedded_columns = 0;
  // The edge features, for models that read them (ModelTraits::edges). Categories are embedded by "edge_encoder.*",
  // as in sets; floats are read directly. Without categories and floats, the model reads no edge features.
  EncoderInput edge = {};
};

// Node-level models. They make one prediction for each seed node of a block.
// Threads: the device thread. Owns its tensors.
class NodeModel {
 public:
  virtual ~NodeModel() = default;

  // Returns [row_ends[0], num_outputs] logits; a program that scores pairs itself returns [P, 1]. Dropout applies
  // only in kTrain. GCN takes the degrees of its normalisation from the block's edges, as PyG does on a sampled
  // subgraph. Each row without a self-loop gets a self-loop of weight 1. Rows beyond row_ends[L - 1] have no other
  // edge.
  virtual at::Tensor Forward(const NodeBlock& block, Mode mode) = 0;
  // Hands over the scalar loss that the last Forward computed. If the returned tensor is undefined, the model
  // computes no loss, and the caller computes the job's loss from the prediction.
  virtual at::Tensor TakeLoss() { return {}; }

  virtual TensorSet& tensors() = 0;
  // Returns JSON for `__metadata__` of the weights file.
  virtual std::string Describe() const = 0;
};

// Our own node-level models are built layer by layer, so the layers can also be run one by one. A model has
// num_layers convolutions, with a norm, ReLU and dropout between them. The last convolution gives the outputs.
// Parameters have the names of torch_geometric.nn.models.
class LayerWiseModel : public NodeModel {
 public:
  // Layer-wise inference of a whole graph. The caller runs one layer after the other, in chunks of rows, without
  // gradients:
  //   projected = Project(l, rows of the layer's input)             for every chunk of rows
  //   output    = Combine(l, projected of all rows, chunk)          for every chunk of rows
  // The output of layer l (0-based) is the input of layer l + 1. The predictions are the output of the last layer or,
  // if joins(), of JoinOutput. These predictions equal the output of Forward in kEval on the whole graph as one
  // block, up to float tolerance.
  struct InputRows {
    at::Tensor dense;                                             // [n, in] float32; undefined: CSR rows follow
    at::Tensor feature_offsets, feature_columns, feature_values;  // as in NodeBlock (first layer only)
  };
  // Returns [n, projected_width(layer)]. A layer without a projection returns its input rows, made dense if necessary.
  // Layer 0 first normalises and embeds its rows, as the options say.
  virtual at::Tensor Project(int64_t layer, const InputRows& rows) = 0;
  virtual int64_t projected_width(int64_t layer) const = 0;
  struct Chunk {
    int64_t first_row = 0;            // the chunk's first row, among all rows
    at::Tensor offsets;               // [n + 1] int64, starting at 0: in-edges of the chunk's rows
    at::Tensor sources;               // [edges] int64, rows of the whole graph
    at::Tensor edge_weights;          // [edges] or undefined
    at::Tensor edge_features;         // [edges, columns] or undefined, as in NodeBlock
    at::Tensor edge_code;             // filled in by the model; callers leave it undefined
    at::Tensor inverse_sqrt_degrees;  // [all rows] float32, see InverseSqrtDegrees
  };
  // Returns [n] float32 for the chunk's own rows, or an undefined tensor if the model needs none. The caller
  // concatenates the results of all chunks into inverse_sqrt_degrees before the first Combine. GCN returns
  // degree^-1/2, or 0 if the degree is not positive. The degree is 1 + the sum of the in-edges' weights, less 1 for
  // each self-loop among them. The function reads only first_row and the edges.
  virtual at::Tensor InverseSqrtDegrees(const Chunk& chunk) const = 0;
  // projected: [all rows, projected_width(layer)]. input: the layer's input for the chunk's rows; the first layer
  // does not read `input`. Returns [n, hidden or num_outputs].
  virtual at::Tensor Combine(int64_t layer, const at::Tensor& projected, const Chunk& chunk,
                             const at::Tensor& input) = 0;
  // Returns true if predictions are made from the outputs of all layers, false if from the last layer's alone.
  virtual bool joins() const = 0;
  // Needed only if joins(). Returns what must be kept of the outputs of layers 0..layer, for some rows. For the last
  // layer, returns the predictions, [n, num_outputs].
  // output: the output of this layer. before: the result of JoinOutput for the layer before; undefined for layer 0.
  virtual at::Tensor JoinOutput(int64_t layer, const at::Tensor& before, const at::Tensor& output) const = 0;
};

// One mini-batch of small graphs on the device, padded: real rows come first, then padding.
struct GraphSetBatch {
  int64_t padded_graphs = 0;
  // [N, columns] and [E, columns], int64 or float32; undefined if the set has no such features.
  at::Tensor node_features;
  at::Tensor edge_features;
  at::Tensor positions;      // [N, columns] float32, which programs read; may be undefined
  at::Tensor edge_source;    // [E] int64: row numbers within this batch
  at::Tensor edge_target;    // [E] int64, rising
  at::Tensor graph_of_node;  // [N] int64; padding nodes belong to the last graph
  at::Tensor labels;         // [G, targets] float32, NaN where missing and in padding graphs
  // The following numbers are tensors, so that one executable serves many batches and steps.
  at::Tensor real_nodes;   // [1] int64: number of rows that batch norm may see
  at::Tensor real_graphs;  // [1] int64: number of graphs that the virtual node's batch norm may see
  at::Tensor step;         // [1] int64: optimizer steps done, which select dropout's masks
  // [N] and [G] int64: the keys of dropout's masks of nodes and of graphs; undefined: each row's own position.
  at::Tensor node_keys, graph_keys;
};

struct GraphModelOptions {
  spec::ModelOptions model;
  EncoderInput node, edge;
  int64_t num_targets = 1;      // outputs for each graph: targets, or classes of cross-entropy
  int64_t max_graph_nodes = 0;  // nodes of the dataset's largest graph
  int64_t position_columns = 0;
};

// Graph-level models. They make one prediction for each graph in a batch of small graphs.
// Threads: the device thread. Owns its tensors.
class GraphModel {
 public:
  virtual ~GraphModel() = default;
  // Returns [padded graphs, num_targets]. In kTrain it also updates the model's buffers, such as running statistics.
  virtual at::Tensor Forward(const GraphSetBatch& batch, Mode mode) = 0;
  // Same as NodeModel::TakeLoss.
  virtual at::Tensor TakeLoss() { return {}; }
  virtual TensorSet& tensors() = 0;
  // Returns JSON for `__metadata__` of the weights file: what is needed to build an equal module.
  virtual std::string Describe() const = 0;
};

// Row counts of one step, without padding. CostOf estimates the step's cost from them before the step exists.
struct StepRows {
  // [num_layers + 1], from the outputs to the inputs: the number of rows whose representation is needed at each depth,
  // as in NodeBlock::row_ends. For a whole graph or a batch of small graphs, each entry is the number of all
  // nodes.
  std::vector<double> nodes;
  double edges = 0;
  double graphs = 0;  // rows that get a prediction
};

// Counts of values (4 bytes each).
struct ModelCost {
  double parameters = 0;
  // The most values alive at one moment of an eager training step. Values saved for the backward pass count, and so
  // do values that the backward pass allocates. The batch itself and the gradients of parameters do not count.
  double activations = 0;
};

// Makes a model. Weights are drawn on the CPU from `seed` (equal on every device), then moved to `device`. Throws
// c10::Error if the architecture does not serve the level.
std::unique_ptr<GraphModel> MakeGraphModel(const GraphModelOptions& options, uint64_t seed, at::Device device);
std::unique_ptr<LayerWiseModel> MakeNodeModel(const NodeModelOptions& options, uint64_t seed, at::Device device);

// Returns what the model and one training step of it cost. Throws c10::Error as MakeGraphModel and MakeNodeModel do.
ModelCost CostOf(const GraphModelOptions& options, const StepRows& rows);
ModelCost CostOf(const NodeModelOptions& options, const StepRows& rows);

}  // namespace permafrost::nn
