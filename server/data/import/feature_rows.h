// Rows of features: a table of int32 if every cell is an integer, else of float32.
// Threads: one at a time. Memory: one row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "data/import/value_sets.h"
#include "data/source/csv_rows.h"
#include "data/store/types.h"

namespace permafrost::data {

// Reads a whole table as one type. A caller begins with kInt32 and, when needs_floats, begins the file anew with
// kFloat32.
class FeatureRows {
 public:
  explicit FeatureRows(DataType type) { summary_.type = type; }

  // Takes in one row; the first sets the width. Errors: InvalidArgument for a ragged row or a cell that is no finite
  // number. An integer that only a float table could hold is reported by Finish, unless floats turn up first.
  absl::Status Parse(const CsvRows& rows, std::string_view line);
  // A cell is no integer: what was parsed is void.
  bool needs_floats() const { return needs_floats_; }
  // The row last parsed, width cells of 4 bytes.
  std::span<const std::byte> row() const;
  // After the last row.
  absl::Status Finish() const { return out_of_range_; }
  // Returns the values that occur in each column of a table of integers; empty for floats.
  std::vector<CategoryTable> categories() const;
  // kNone where there was no row.
  FeatureSummary summary() const;

 private:
  absl::Status ParseInt(const CsvRows& rows, std::string_view cell, size_t column);
  absl::Status ParseFloat(const CsvRows& rows, std::string_view cell, size_t column);
  void Widen(size_t column, double value);

  FeatureSummary summary_;
  ValueSets values_;  // of integers
  std::vector<int32_t> ints_;
  std::vector<float> floats_;
  bool needs_floats_ = false;
  absl::Status out_of_range_;
};

}  // namespace permafrost::data
