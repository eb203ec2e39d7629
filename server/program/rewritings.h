// The rewritings of a program. Each rewriting returns another program with results that are equal up to rounding. The
// new program needs less computation, or has steps that a device can capture. Each rewriting has its own source file
// (self_loops.cc, row_layers.cc, node_linears.cc, edge_regions.cc).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/kernels/edge_region.h"
#include "program/program.h"

namespace permafrost::program {

// WithoutSelfLoops is for graphs without self-loops, which are edges from a node to itself. Before PyG's layers add
// self-loops, they remove existing self-loops by a mask. The number of edges that the mask keeps depends on values,
// so a step with the mask cannot be captured. In a graph without self-loops, the mask keeps all edges.

// Returns a program that gives bit-equal results for every `edge_index` without self-loops, except for the sign of
// zeros in gradients. The same tensors get gradients. Returns nullopt if nothing needs rewriting. If a mask separates
// self-loops from other edges, reads and writes through the mask become ranges of rows. The mask may be computed from
// edge_index, or from the edges that an earlier mask kept. A self-loop for each node may have been appended to these
// edges.
std::optional<Program> WithoutSelfLoops(const Program& program);

// The next two rewritings make layers run as operators of nn, on the CPU. WithLinearForms turns products with
// matrices, and recurrent cells, into calls of aten::linear. Later rewritings can then move these linear maps before
// a gather, or turn them into operators of nn. Other devices have kernels for whole cells. WithRowLayers turns
// linear maps into permafrost::row_linear and batch norms into permafrost::row_norm, each with the ReLU that follows
// it. It turns embeddings into permafrost::row_embedding.

// Rewrites matmul, mm and addmm with a matrix of known sizes, recurrent cells, and recurrent layers without dropout
// over sequences of a known length. addmm must have beta and alpha 1, and a bias as wide as the result. One recurrent
// layer operator may become at most 64 cells (layers * directions * steps). All recurrent layer operators of a
// program together may become at most 256 cells. A layer operator beyond these limits is not rewritten. Tensors must
// have one known type, float32 or float64. The rewritten program gives equal results up to rounding. Returns nullopt
// if nothing was rewritten.
std::optional<Program> WithLinearForms(const Program& program);

struct RowLayersOptions {
  bool norms = true;  // true: also rewrites batch norms in training
};

struct RowLayers {
  Program program;
  int64_t linears = 0, norms = 0, embeddings = 0;  // the numbers of rewritten operators
};

// Returns nullopt if nothing was rewritten. Results equal the program's up to rounding. A linear map is rewritten
// only if x, weight and bias share one known type, float32 or float64. A norm is rewritten only if it is in training,
// has weight, bias and running statistics, and its x is [N, D]. An embedding is rewritten only if it has no padding
// index, no sparse gradients, and no gradients scaled by frequency.
std::optional<RowLayers> WithRowLayers(const Program& program, const RowLayersOptions& options);

// Returns true if a permafrost::row_linear of the program has float32 weights.
bool HasFloat32Linears(const Program& program);

// The next two rewritings multiply rows before the rows are gathered. PyG's layers gather node features to the edges
// and then map them linearly. There are more edges than nodes, so mapping the nodes first takes fewer products. A
// feature with few categories is a row of a small embedding table. Mapping that table also takes fewer products. In
// NNConv, edges of one category share a matrix, so no matrix is made for each edge.

// Returns a program that gives equal results up to rounding, with gradients for the same tensors. Returns nullopt if
// no node is a candidate.
// - A linear map of gathered rows becomes a gather from the mapped table. Sums, products with numbers and changes of
//   shape may lie between the gather and the map. If the rows are a concatenation of columns, each part is mapped by
//   itself. A part that is not gathered is mapped without a gather.
// - A table qualifies if it has at most kSmallTable rows, or if it has a row per node and the index has an entry per
//   edge. A table is mapped only if that takes fewer products (FewerProducts).
// - Elementwise operators on gathered rows of a small table run on the table, so that a linear map after them can run
//   on the table too.
// Values that an operator writes to in place are not rewritten.
std::optional<Program> WithNodeLinears(const Program& program);

// Returns a program that gives equal results up to rounding, with gradients for the same tensors. Returns nullopt if
// nothing needs rewriting. It rewrites the product of two operands per edge: the feature row of a node at the edge's
// end, and a matrix gathered from at most kMaxCategories matrices. The new program multiplies all nodes by all
// matrices, and each edge gathers its product. WithNodeLinears must have run before, since it turns matrices computed
// from an embedding into gathered rows.
std::optional<Program> WithCategoryProducts(const Program& program);

// The most matrices for which WithCategoryProducts rewrites. With more matrices, multiplying all nodes by all
// matrices takes longer than multiplying each edge's row by its matrix.
inline constexpr int64_t kMaxCategories = 16;

// WithEdgeRegions finds two kinds of regions in the graph of any module's program, and replaces each region by one
// operator (nn/ops/edge_region.h). Message passing becomes permafrost::edge_region. This operator gathers by the ends
// of edges, computes on each edge, and reduces by target node, without storing a tensor with a row per edge.
// Connected operators that compute each row from the same row of their inputs become permafrost::row_region.

struct FoundRegion {
  nn::EdgeRegion region;
  std::vector<std::string> nodes;    // names of the replaced nodes, in order
  std::vector<std::string> sources;  // the user's source lines of these nodes, each once
};
struct FusedProgram {
  Program program;
  std::vector<FoundRegion> regions;  // in the order in which they were found
};

// Returns nullopt if the program has no region, or more than 10,000 nodes. Results equal the program's up to
// rounding. A node is not fused if it draws random numbers, writes to shared memory, or has an unknown type or width.
// `differentiated` is true if gradients will be computed.
std::optional<FusedProgram> WithEdgeRegions(const Program& program, bool differentiated);

}  // namespace permafrost::program
