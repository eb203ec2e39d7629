// Programs that multiply rows before they gather them. Messages of PyG's layers are linear maps of the features at the
// ends of edges, of which there are more than nodes; features of few categories are multiplied row by row as well.
// Threads: pure functions.
#pragma once

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

}  // namespace permafrost::program
