// The convolutions, one for each architecture. Models of nodes and models of sets of graphs stack them as layers.
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
  int64_t heads = 1;          // attention heads
  bool joins_heads = true;    // true: the heads' outputs are concatenated to `out` channels; false: averaged
  int64_t edge_channels = 0;  // width of the edge rows of attention and GINE; 0: no edge rows
  spec::Aggregation aggregation = spec::Aggregation::kMean;
  bool of_nodes = true;  // true: parameters are named as in torch_geometric.nn.models; false: as in a Sequential
};

// Names of the linear maps of GIN's and GINE's MLP within a convolution.
struct GinNames {
  const char *first, *second;
};
constexpr GinNames GinNamesOf(const ConvShape& shape) {
  return shape.of_nodes ? GinNames{".nn.lins.0", ".nn.lins.1"} : GinNames{".nn.0", ".nn.2"};
}

// The factors of messages, equal in all layers of a block (see ConvEdges in nn/ops/graph_conv.h). A factor that the
// convolution does not use is undefined.
struct MessageNorm {
  at::Tensor weights;  // [E]
  at::Tensor self;     // [rows with in-edges]
  at::Tensor scale;    // [rows with in-edges]
};

struct ConvCall {
  ConvEdges edges;       // offsets undefined: the rows already hold the sums
  at::Tensor edge_rows;  // [E, edge_channels], or [codes, edge_channels] with edge_code; or undefined
  at::Tensor edge_code;  // [E] int32, the row of each edge in edge_rows; undefined: edge e has row e
  ConvActivation activation;
  double attention_p = 0;  // dropout probability of the attention
};

// Threads: the device thread. The tensors belong to the model.
class Convolution {
 public:
  virtual ~Convolution() = default;
  // Returns [targets, out], after the activation. `targets` is the number of rows that the offsets of `edges` cover. If
  // the offsets are undefined, it is the number of rows of `in`.
  virtual at::Tensor Apply(const LayerWiseModel::InputRows& in, const ConvCall& call) const = 0;
  // Layer-wise inference, as in LayerWiseModel. Combine applies no ReLU. The chunk's edge_features hold the tensor
  // that ConvCall has in edge_rows.
  virtual at::Tensor Project(const LayerWiseModel::InputRows& rows) const = 0;
  virtual int64_t projected_width() const = 0;
  virtual at::Tensor Combine(const at::Tensor& projected, const LayerWiseModel::Chunk& chunk) const = 0;
};

// Counts of values (4 bytes each) of one layer in training. The counts cover the layer's parameters, the values saved
// for the backward pass, and the values that the backward pass of the layer allocates.
struct ConvCost {
  double parameters = 0, saved = 0, backward = 0;
};
// Row counts of one layer. first: true for the first layer, whose input needs no gradient.
struct ConvRows {
  double sources = 0, targets = 0, edges = 0;
  bool first = false;
};

struct ConvolutionKind {
  spec::Architecture architecture;
  std::unique_ptr<Convolution> (*make)(WeightMaker& weights, const std::string& name, const ConvShape& shape);
  // Computes the factors of messages. Each source is in [0, rows), and `offsets` covers the rows with in-edges.
  // edge_rows: true if layers get ConvCall::edge_rows.
  MessageNorm (*norm)(const at::Tensor& offsets, const at::Tensor& sources, const at::Tensor& edge_weights,
                      int64_t rows, at::ScalarType type, bool edge_rows);
  // Same as LayerWiseModel::InverseSqrtDegrees. Null: the convolution uses no degrees.
  at::Tensor (*inverse_sqrt_degrees)(const LayerWiseModel::Chunk& chunk, at::ScalarType type);
  ConvCost (*cost)(const ConvShape& shape, const ConvRows& rows);
};
// kGatv2Convolution is defined in gatv2.cc, the others in convolution.cc.
extern const ConvolutionKind kSageConvolution, kGcnConvolution, kGinConvolution, kGineConvolution, kGatv2Convolution;
template <class Conv>
std::unique_ptr<Convolution> MakeConvolution(WeightMaker& weights, const std::string& name, const ConvShape& shape) {
  return std::make_unique<Conv>(weights, name, shape);
}
// Returns the convolution of an architecture. GINE's convolution serves one large graph; models of graph sets have
// their own GINE layers (nn/models/graph_set_model.cc).
const ConvolutionKind& ConvolutionOf(spec::Architecture architecture);

// Throws c10::Error if the architecture does not serve this level.
void CheckLevel(spec::Architecture architecture, spec::ModelLevel level);

// Returns rows * weight^T. weight: [out, in].
at::Tensor MultiplyRows(const LayerWiseModel::InputRows& rows, const at::Tensor& weight);
LayerWiseModel::InputRows FirstRows(const LayerWiseModel::InputRows& rows, int64_t count);
// Applies what GraphConv does after its sum: ReLU and dropout.
at::Tensor Activate(const at::Tensor& x, const ConvActivation& activation);
}  // namespace permafrost::nn
