#include "data/import/value_sets.h"

#include <algorithm>
#include <bit>

namespace permafrost::data {
namespace {

// Numbers below have a bit each.
constexpr int64_t kMostBits = int64_t{1} << 20;
constexpr uint64_t kBytesPerOther = 32;

}  // namespace

void ValueSets::GiveUp(Column& column) {
  bytes_ -= column.bits.size() * sizeof(uint64_t) + column.others.size() * kBytesPerOther;
  column = Column{.bits = {}, .others = {}, .count = 0, .too_many = true};
}

void ValueSets::Count(Column& column) {
  if (++column.count > kMaxCategoryValues) GiveUp(column);
}

void ValueSets::AddBeyond(Column& column, int64_t value) {
  if (column.too_many) return;
  if (value >= 0 && value < kMostBits) {
    const size_t words = std::max<size_t>(std::bit_ceil(static_cast<uint64_t>(value) / 64 + 1), 4);
    bytes_ += (words - column.bits.size()) * sizeof(uint64_t);
    column.bits.resize(words);
    column.bits[static_cast<size_t>(value) / 64] |= uint64_t{1} << value % 64;
    Count(column);
  } else if (column.others.insert(value).second) {
    bytes_ += kBytesPerOther;
    Count(column);
  }
  if (bytes_ > kMostBytes) GiveUp(column);
}

void ValueSets::Take(size_t column, CategoryTable& table) const {
  table.values.clear();
  if (column >= columns_.size()) return;
  const Column& of = columns_[column];
  table.too_many = of.too_many;
  table.values.assign(of.others.begin(), of.others.end());
  for (size_t word = 0; word < of.bits.size(); ++word) {
    for (uint64_t left = of.bits[word]; left != 0; left &= left - 1) {
      table.values.push_back(static_cast<int64_t>(word * 64) + std::countr_zero(left));
    }
  }
  std::ranges::sort(table.values);
}

std::vector<CategoryTable> ValueSets::TakeColumns(int64_t width) const {
  std::vector<CategoryTable> tables(static_cast<size_t>(width));
  for (size_t column = 0; column < tables.size(); ++column) {
    tables[column].column = static_cast<int64_t>(column);
    Take(column, tables[column]);
  }
  return tables;
}

}  // namespace permafrost::data
