// Convolutions: what the models of a graph's nodes and of sets of graphs are stacked of, one for each architecture.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "nn/models/model.h"
#include "nn/ops/graph_conv.h"
#include "nn/tensor_set.h"

namespace permafrost::nn {

// The shape of one layer.
struct ConvShape {
  int64_t in = 0, out = 0;    // channels of a row
  int64_t heads = 1;          // of attention
  bool joins_heads = true;    // out is all heads side by side, else their mean
  int64_t edge_channels = 0;  // of a row of each edge, which attention and GINE read; 0: without
  spec::Aggregation aggregation = spec::Aggregation::kMean;
  bool of_nodes = true;  // named as the modules of torch_geometric.nn.models, else as a Sequential in the convolution
};

// Names of the linear maps of GIN's and GINE's MLP within a convolution.
struct GinNames {
  const char *first, *second;
};
constexpr GinNames GinNamesOf(const ConvShape& shape) {
  return shape.of_nodes ? GinNames{".nn.lins.0", ".nn.lins.1"} : GinNames{".nn.0", ".nn.2"};
}

// The factors that a convolution multiplies messages with, equal in all layers of a block: ConvEdges of
// nn/ops/graph_conv.h. Undefined where it does not.
struct MessageNorm {
  at::Tensor weights;  // [E]
  at::Tensor self;     // [rows with in-edges]
  at::Tensor scale;    // [rows with in-edges]
};

struct ConvCall {
  ConvEdges edges;       // offsets undefined: the sums are made already, in the rows
  at::Tensor edge_rows;  // [E, edge_channels] or undefined; with codes [codes, edge_channels]
  at::Tensor edge_code;  // [E] int32 row of each edge among them; undefined: its own place
  ConvActivation activation;
  double attention_p = 0;  // of attention's dropout
};

// Threads: the device thread. Its tensors are the model's.
class Convolution {
 public:
  virtual ~Convolution() = default;
  // [targets, out], with the activation. targets: rows of `edges`, or, where its offsets are undefined, of `in`.
  virtual at::Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const = 0;
  // Layer by layer, as LayerWiseModel: Combine is without ReLU, and the chunk's edge_features are ConvCall's edge_rows.
  virtual at::Tensor Project(const LayerWiseModel::InputRows& rows) const = 0;
  virtual int64_t projected_width() const = 0;
  virtual at::Tensor Combine(const at::Tensor& projected, const LayerWiseModel::Chunk& chunk) const = 0;
};

// Values (4 bytes each) of one layer in training: its parameters, what is kept for the backward pass, and what the
// backward pass makes while it is in this layer.
struct ConvCost {
  double parameters = 0, saved = 0, backward = 0;
};
// Rows of one layer. first: its input's gradient is not asked for.
struct ConvRows {
  double sources = 0, targets = 0, edges = 0;
  bool first = false;
};

struct ConvolutionKind {
  spec::Architecture architecture;
  std::unique_ptr<Convolution> (*make)(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  // sources: of rows below `rows`; offsets: of those with in-edges. edge_rows: whether there are rows of edges.
  MessageNorm (*norm)(const at::Tensor& offsets, const at::Tensor& sources, const at::Tensor& edge_weights,
                      int64_t rows, at::ScalarType type, bool edge_rows);
  // As LayerWiseModel::InverseSqrtDegrees; null: the convolution uses no degrees.
  at::Tensor (*inverse_sqrt_degrees)(const LayerWiseModel::Chunk& chunk, at::ScalarType type);
  ConvCost (*cost)(const ConvShape& shape, const ConvRows& rows);
};
// All stand in convolution.cc but GATv2's, which is in gatv2.cc.
extern const ConvolutionKind kSageConvolution, kGcnConvolution, kGinConvolution, kGineConvolution, kGatv2Convolution;
template <class Conv>
std::unique_ptr<Convolution> MakeConvolution(WeightMaker& weights, const std::string& name, const ConvShape& shape) {
  return std::make_unique<Conv>(weights, name, shape);
}
// Returns the convolution of each architecture. The one of GINE serves one large graph; sets have layers of their own
// (nn/models/graph_set_model.cc).
const ConvolutionKind& ConvolutionOf(spec::Architecture architecture);

// Throws c10::Error where the architecture is not of this level.
void CheckLevel(spec::Architecture architecture, spec::ModelLevel level);

// rows * weight^T. weight: [out, in].
at::Tensor MultiplyRows(const LayerWiseModel::InputRows& rows, const at::Tensor& weight);
LayerWiseModel::InputRows FirstRows(const LayerWiseModel::InputRows& rows, int64_t count);
// Does what GraphConv does after its sum.
at::Tensor Activate(const at::Tensor& x, const ConvActivation& activation);
}  // namespace permafrost::nn
