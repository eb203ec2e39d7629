// Reads rows of features and labels of CSV files, and keeps the values that occur in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "data/source/csv_rows.h"
#include "data/store/categories.h"
#include "data/store/types.h"

namespace permafrost::data {

// The different whole numbers of each column of a table, as it is read.
// Threads: one at a time. Memory: a bit for each number below a million and 32 bytes for each other one, of all columns
// together at most kMostBytes: a column beyond that is given up.
class ValueSets {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;

  void Add(size_t column, int64_t value) {
    if (column >= columns_.size()) columns_.resize(column + 1);
    Column& into = columns_[column];
    const auto bit = static_cast<uint64_t>(value);
    if (bit / 64 < into.bits.size()) {
      uint64_t& word = into.bits[bit / 64];
      const uint64_t mask = uint64_t{1} << bit % 64;
      if ((word & mask) != 0) return;
      word |= mask;
      Count(into);
      return;
    }
    AddBeyond(into, value);
  }
  // Puts the values of a column into `table`. If there are more than categories may have, `table` is told that there
  // are too many.
  void Take(size_t column, CategoryTable& table) const;
  // Tables of columns taken over as they stand, one for each.
  std::vector<CategoryTable> TakeColumns(int64_t width) const;
  void Clear() { *this = ValueSets(); }

 private:
  struct Column {
    std::vector<uint64_t> bits;
    absl::flat_hash_set<int64_t> others;
    int64_t count = 0;
    bool too_many = false;
  };
  void AddBeyond(Column& column, int64_t value);
  void Count(Column& column);
  void GiveUp(Column& column);

  std::vector<Column> columns_;
  uint64_t bytes_ = 0;
};

// Labels of a CSV file: a row of targets, some of which may be missing.
// Threads: pure.

// The targets of `line`, which is the row that `rows` read last; NaN for one that is missing: empty, nan, NaN or NA.
// Errors: InvalidArgument naming file, row and target for what is neither missing nor a finite number.
absl::Status ParseLabels(const CsvRows& rows, std::string_view line, std::vector<float>& labels);

// Rows of features: a table of int32 if every cell is an integer, else of float32.
// Threads: one at a time. Memory: one row.

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
