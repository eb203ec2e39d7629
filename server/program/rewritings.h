// The rewritings of a program: each returns another program that computes the same, up to rounding, with less work or
// with steps that a device can capture. A source per rewriting implements them (self_loops.cc, row_layers.cc,
// node_linears.cc, edge_regions.cc). Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/kernels/edge_region.h"
#include "program/program.h"

namespace permafrost::program {

// WithoutSelfLoops is for graphs without self-loops: edges that begin and end at one node. PyG's layers that add
// self-loops first remove existing ones by a mask. How many rows a mask keeps depends on values, so such a step cannot
// be captured. Without self-loops the number follows from sizes.

// Returns a program that gives bit-equal results for every `edge_index` without self-loops, except for the sign of
// zeros in gradients. The same tensors get gradients. Returns nullopt if nothing needs rewriting. Where a mask
// separates self-loops from other edges, reads and writes through it become ranges of rows. The edges may be
// edge_index, what such a mask left of it, or either with a self-loop for each node appended.
std::optional<Program> WithoutSelfLoops(const Program& program);

// The next two make layers run as operators of nn, on the CPU. WithLinearForms rewrites products with matrices, and
// recurrent cells, as aten::linear. Later rewritings can then move these maps before a gather, or run them by operators
// of nn; other devices have kernels for whole cells. WithRowLayers makes linear maps and batch norms
// permafrost::row_linear and permafrost::row_norm, each with the ReLU behind it.

// Rewrites matmul, mm and addmm by a matrix of known sizes, recurrent cells, and recurrent layers without dropout over
// sequences of a known length. addmm must have beta and alpha 1, and a bias as wide as the result. A layer operator may
// have 64 cells (layers * directions * steps), and a program 256; the others stay. Tensors must have one known type,
// float32 or float64. The rewritten program computes the same up to rounding. Returns nothing if nothing was rewritten.
std::optional<Program> WithLinearForms(const Program& program);

struct RowLayersOptions {
  bool norms = true;  // batch norms in training too; false: only linear maps
};

struct RowLayers {
  Program program;
  int64_t linears = 0, norms = 0;  // how many were rewritten
};

// Returns nothing if the program has neither. Results equal the program's up to rounding. A map stays
// unless x, weight and bias share one known type, float32 or float64. A norm stays in evaluation, without weight, bias
// or running statistics, or if x is not [N, D].
std::optional<RowLayers> WithRowLayers(const Program& program, const RowLayersOptions& options);

// Returns whether a permafrost::row_linear of the program has float32 weights.
bool HasFloat32Linears(const Program& program);

// The next two multiply rows before they are gathered. Messages of PyG's layers are linear maps of the features at the
// ends of edges, of which there are more than nodes; features of few categories are multiplied row by row as well.
// NNConv's products are rewritten, too: edges of one category share a matrix, so that no matrix for each edge is made.

// Returns a program that gives equal results up to rounding, with gradients for the same tensors. Returns nullopt if no
// node is a candidate.
// - A linear map of rows that an index gathers becomes a gather of the mapped table. The rows may have passed sums,
//   products with numbers, and changes of shape. Concatenated columns are mapped one by one. Columns that no index
//   gathers are multiplied where they are.
// - Tables qualify that have at most kSmallTable rows, or a row for each node while the index has one for each edge.
//   They are mapped only if that is less work (FewerProducts).
// - Value-by-value operators on gathered rows of a small table run on the table, so that a map after them can follow.
// Values that an operator writes to in place are left alone.
std::optional<Program> WithNodeLinears(const Program& program);

// Returns a program that gives equal results up to rounding, with gradients for the same tensors. Returns nullopt if
// nothing needs rewriting. A product of the row of an edge's end with a matrix that is gathered from at most
// kMaxCategories becomes a product of all nodes with all matrices, from which each edge gathers its own.
// WithNodeLinears must have run: it turns matrices computed from an embedding into gathered rows.
std::optional<Program> WithCategoryProducts(const Program& program);

// With more categories the products of all nodes take longer than the matrices of the edges.
inline constexpr int64_t kMaxCategories = 16;

// WithEdgeRegions finds two kinds of regions in a program's graph, whatever module it comes from, and makes each one
// operator (nn/ops/edge_region.h). Message passing becomes permafrost::edge_region: what is gathered by the ends of
// edges, worked out for each edge and reduced by target, with no tensor of edges in between. Connected operators that
// compute each row by itself become permafrost::row_region.

struct FoundRegion {
  nn::EdgeRegion region;
  std::vector<std::string> nodes;    // the names of the nodes that it stands for, in their order
  std::vector<std::string> sources;  // the user's lines that they come from, each once
};
struct FusedProgram {
  Program program;
  std::vector<FoundRegion> regions;  // in the order in which they were found
};

// Returns nothing if the program has no region, or more than 10,000 nodes. Results equal the program's up to rounding.
// A node stays if it draws random numbers, writes to shared memory, or has an unknown type or width. differentiated:
// whether gradients will be asked for.
std::optional<FusedProgram> WithEdgeRegions(const Program& program, bool differentiated);

}  // namespace permafrost::program
