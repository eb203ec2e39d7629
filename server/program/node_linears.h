// Programs that multiply rows before they gather them. Messages of PyG's layers are linear maps of the features at the
// ends of edges, of which there are more than nodes; features of few categories are multiplied row by row as well.
// Threads: pure functions.
#pragma once

#include <optional>

#include "program/program.h"

namespace permafrost::program {

// Returns a program that gives equal results up to rounding, with gradients for the same tensors. Returns nullopt if
// nothing needs rewriting.
// - A linear map of rows that an index gathers becomes a gather of the mapped table. The rows may have passed sums,
//   products with numbers, and changes of shape. Columns that are concatenated are mapped one by one, and those that
//   no index gathers stay as they are.
// - This is done for tables of at most kSmallTable rows, and for tables of nodes gathered for edges, where fewer
// numbers
//   are multiplied then.
// - What is computed value by value of rows of a small table, between such maps, is computed on the table.
// Values that an operator writes to in place are left alone.
std::optional<Program> WithNodeLinears(const Program& program);

}  // namespace permafrost::program
