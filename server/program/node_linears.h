// Programs that multiply rows before they gather them. Messages of PyG's layers are linear maps of the features at the
// ends of edges, of which there are more than nodes; features of few categories are multiplied row by row as well.
// NNConv's products are rewritten, too: edges of one category share a matrix, so that no matrix for each edge is made.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "program/program.h"

namespace permafrost::program {

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

}  // namespace permafrost::program
