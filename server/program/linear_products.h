// Decides which tables to multiply when a linear map moves before the gathers of its rows. Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "program/gathered_rows.h"

namespace permafrost::program {

// A table times a weighted sum of the weight's columns, and the gathers of its rows that are added up.
struct Product {
  ValueIndex table = kNoValue;
  int64_t width = 0;
  std::vector<double> factors;   // for each of the columns of rows; 0 where the table is no part of them
  std::vector<GatherTerm> uses;  // the first has the factor 1
};

// Returns the products of tables that take the place of a linear map of gathered columns. Returns nullopt if no column
// is gathered, if gathers cancel, if the width differs, or if the work does not shrink.
std::optional<std::vector<Product>> FewerProducts(const Rows& rows, int64_t width);

}  // namespace permafrost::program
