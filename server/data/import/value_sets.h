// The different whole numbers of each column of a table, as it is read.
// Threads: one at a time. Memory: a bit for each number below a million and 32 bytes for each other one, of all columns
// together at most kMostBytes: a column beyond that is given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "data/store/categories.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
