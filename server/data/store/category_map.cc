#include "data/store/category_map.h"

#include <optional>

namespace permafrost::data {
namespace {

// A map of all own categories takes 8 bytes each, whether they occur or not.
constexpr int64_t kMostDense = int64_t{1} << 21;

// The category of `known` that means what `value` means in `own`.
std::optional<int64_t> Translate(const CategoryTable& own, const CategoryTable& known, int64_t value) {
  const bool is_open = own.open_ended && value == own.values.back();
  // All that is as large as the last value of an open end is counted as that.
  if (known.open_ended && value >= known.values.back()) return known.CategoryOf(known.values.back());
  // "50 or more" may be any of several.
  return is_open ? std::nullopt : known.CategoryOf(value);
}

}  // namespace

CategoryMap::CategoryMap(const CategoryTable& own, const CategoryTable& known) : unknown_(known.num_categories()) {
  const int64_t categories = own.num_categories();
  const bool dense = categories <= kMostDense && (own.values.empty() || own.CategoryOf(own.values.front()) >= 0);
  if (dense) dense_.assign(static_cast<size_t>(categories), unknown_);
  for (const int64_t value : own.values) {
    const std::optional<int64_t> category = own.CategoryOf(value);
    const std::optional<int64_t> to = Translate(own, known, value);
    if (!to) unknown_values_.push_back(value);
    const int64_t means = to.value_or(unknown_);
    as_they_stand_ = as_they_stand_ && means == *category;
    (dense ? dense_[static_cast<size_t>(*category)] : sparse_[*category]) = means;
  }
}

}  // namespace permafrost::data
