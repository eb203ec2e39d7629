// Reads rows of features and labels from CSV files, and collects the values that occur in them.
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

// Collects the distinct whole numbers of each column while a table is read.
// Threads: one at a time. Memory: per column, a bitmap of 0..2^20 - 1 up to the largest number that occurs there, and
// 32 bytes for each distinct number outside this range. All columns together take at most kMostBytes. A column that
// would exceed this limit counts as too_many.
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
  // Puts the values of a column into `table`. Sets table.too_many if the column has more values than a table of
  // categories may hold.
  void Take(size_t column, CategoryTable& table) const;
  // Returns one table per column, for columns that are stored unchanged.
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

// Reads the labels of a CSV file. A row holds one or more targets, some of which may be missing.
// Threads: pure.

// Parses the targets of `line`, the row that `rows` read last. A missing target (an empty cell, nan, NaN or NA)
// becomes NaN. Errors: InvalidArgument naming file, row and target, for a cell that is neither missing nor a finite
// number.
absl::Status ParseLabels(const CsvRows& rows, std::string_view line, std::vector<float>& labels);

// Rows of features: an int32 table if every cell is an integer, else a float32 table.
// Threads: one at a time. Memory: one row.

// Reads a whole table as one type. A caller begins with kInt32. When needs_floats() turns true, the caller reads the
// file again from its beginning with kFloat32.
class FeatureRows {
 public:
  explicit FeatureRows(DataType type) { summary_.type = type; }

  // Parses one row; the first row sets the width. Errors: InvalidArgument for a ragged row or a cell that is not a
  // finite number. An integer outside int32 is reported by Finish, since the table may still turn out to hold floats.
  absl::Status Parse(const CsvRows& rows, std::string_view line);
  // Returns true once a cell of a kInt32 table is not an integer. All rows parsed so far are then void.
  bool needs_floats() const { return needs_floats_; }
  // Returns the row parsed last: `width` cells of 4 bytes.
  std::span<const std::byte> row() const;
  // Call it after the last row. Returns an error if the table has an integer outside int32.
  absl::Status Finish() const { return out_of_range_; }
  // Returns the values that occur in each column of a table of integers. The result is empty for a table of floats.
  std::vector<CategoryTable> categories() const;
  // Returns the summary of all rows; its type is kNone if there was no row.
  FeatureSummary summary() const;

 private:
  absl::Status ParseInt(const CsvRows& rows, std::string_view cell, size_t column);
  absl::Status ParseFloat(const CsvRows& rows, std::string_view cell, size_t column);
  void Widen(size_t column, double value);

  FeatureSummary summary_;
  ValueSets values_;  // for integers only
  std::vector<int32_t> ints_;
  std::vector<float> floats_;
  bool needs_floats_ = false;
  absl::Status out_of_range_;
};

}  // namespace permafrost::data
