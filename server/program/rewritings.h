// The rewritings of a program. Each returns another program whose results are equal up to rounding. The new program
// takes less work, or has steps that a device can capture. Each has a source of its own (self_loops.cc,
// row_layers.cc, node_linears.cc, edge_regions.cc).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/kernels/edge_region.h"
#include "program/program.h"

namespace permafrost::program {

// WithoutSelfLoops is for graphs without self-loops: edges that begin and end at one node. PyG's layers that add
// self-loops first remove existing ones by a mask. The number of rows that a mask keeps depends on values, so a step
// with the mask cannot be captured. Without self-loops that number follows from sizes.

// Returns a program that gives bit-equal results for every `edge_index` without self-loops, except for the sign of
// zeros in gradients. The same tensors get gradients. Returns nullopt if nothing needs rewriting. If a mask separates
// self-loops from other edges, reads and writes through it become ranges of rows. The edges may be edge_index, the
// edges that such a mask kept, or either of these with a self-loop for each node appended.
std::optional<Program> WithoutSelfLoops(const Program& program);

// The next two rewritings make layers run as operators of nn, on the CPU. WithLinearForms turns products with matrices
// and recurrent cells into aten::linear. Later rewritings can then move these maps before a gather, or run them by
// operators of nn. Other devices do not need this, since they have kernels for whole cells. WithRowLayers turns linear
// maps and batch norms into permafrost::row_linear and permafrost::row_norm, each with the ReLU that follows it, and
// embeddings into permafrost::row_embedding.

// Rewrites matmul, mm and addmm with a matrix of known sizes, recurrent cells, and recurrent layers without dropout
// over sequences of a known length. addmm must have beta and alpha 1, and a bias as wide as the result. One layer
// operator may become at most 64 cells (layers * directions * steps), and all layer operators of a program at most
// 256 cells. Layer operators beyond these limits stay. Tensors must have one known type, float32 or float64. The
// rewritten program computes the same up to rounding. Returns nullopt if nothing was rewritten.
std::optional<Program> WithLinearForms(const Program& program);

struct RowLayersOptions {
  bool norms = true;  // true: also rewrites batch norms in training
};

struct RowLayers {
  Program program;
  int64_t linears = 0, norms = 0, embeddings = 0;  // how many were rewritten
};

// Returns nullopt if nothing was rewritten. Results equal the program's up to rounding. A linear map stays unless x,
// weight and bias share one known type, float32 or float64. A norm stays if it is in evaluation, lacks weight, bias
// or running statistics, or has an x that is not [N, D]. An embedding stays if it has a padding index, sparse
// gradients, or gradients scaled by frequency.
std::optional<RowLayers> WithRowLayers(const Program& program, const RowLayersOptions& options);

// Returns true if a permafrost::row_linear of the program has float32 weights.
bool HasFloat32Linears(const Program& program);

// The next two rewritings multiply rows before they are gathered. Messages of PyG's layers are linear maps of the
// features at the ends of edges, and there are more edges than nodes. Features of few categories, too, are multiplied
// once per row of their table. In NNConv, edges of one category share a matrix, so no matrix is made for each edge.

// Returns a program that gives equal results up to rounding, with gradients for the same tensors. Returns nullopt if
// no node is a candidate.
// - A linear map of rows that an index gathers becomes a gather of the mapped table. Sums, products with numbers and
//   changes of shape may lie between the gather and the map. Concatenated columns are mapped one by one. Columns that
//   no index gathers are multiplied where they are.
// - A table qualifies if it has at most kSmallTable rows, or a row for each node while the index has one for each
//   edge. A table is mapped only if that is less work (FewerProducts).
// - Value-by-value operators on gathered rows of a small table run on the table, so that a later linear map can do so
//   too.
// Values that an operator writes to in place are left alone.
std::optional<Program> WithNodeLinears(const Program& program);

// Returns a program that gives equal results up to rounding, with gradients for the same tensors. Returns nullopt if
// nothing needs rewriting. It rewrites the product of a row at an edge's end with a matrix that is gathered from at
// most kMaxCategories matrices. The new program multiplies all nodes by all matrices, and each edge gathers its own
// product. WithNodeLinears must have run: it turns matrices computed from an embedding into gathered rows.
std::optional<Program> WithCategoryProducts(const Program& program);

// The most categories that are rewritten. With more, the products of all nodes take longer than the matrices of the
// edges.
inline constexpr int64_t kMaxCategories = 16;

// WithEdgeRegions finds two kinds of regions in a program's graph, whatever module it comes from, and makes each one
// operator (nn/ops/edge_region.h). Message passing becomes permafrost::edge_region. This operator gathers by the ends
// of edges, computes on each edge, and reduces by target, without a tensor of edges in between. Connected operators
// that compute each row by itself become permafrost::row_region.

struct FoundRegion {
  nn::EdgeRegion region;
  std::vector<std::string> nodes;    // the names of the nodes that it replaces, in order
  std::vector<std::string> sources;  // the user's lines that the nodes come from, each once
};
struct FusedProgram {
  Program program;
  std::vector<FoundRegion> regions;  // in the order in which they were found
};

// Returns nullopt if the program has no region, or more than 10,000 nodes. Results equal the program's up to rounding.
// A node stays if it draws random numbers, writes to shared memory, or has an unknown type or width. `differentiated`
// tells whether gradients will be computed.
std::optional<FusedProgram> WithEdgeRegions(const Program& program, bool differentiated);

}  // namespace permafrost::program
