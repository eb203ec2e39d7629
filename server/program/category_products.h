// Rewrites NNConv's products: edges of one category share a matrix, so that no matrix for each edge is made. Threads:
// pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "program/program.h"

namespace permafrost::program {

// Returns a program that gives equal results up to rounding, with gradients for the same tensors. Returns nullopt if
// nothing needs rewriting. A product of the row of an edge's end with a matrix that is gathered from at most
// kMaxCategories becomes a product of all nodes with all matrices, from which each edge gathers its own.
// WithNodeLinears must have run: it turns matrices computed from an embedding into gathered rows.
std::optional<Program> WithCategoryProducts(const Program& program);

// With more categories the products of all nodes take longer than the matrices of the edges.
inline constexpr int64_t kMaxCategories = 16;

}  // namespace permafrost::program
