// Reads the categories of one dataset's column as those of another's, by the source's values.
// Threads: values; const methods are safe anywhere.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "data/store/categories.h"

namespace permafrost::data {

class CategoryMap {
 public:
  // Leaves every category as it stands.
  CategoryMap() = default;
  // From `own` to `known`; neither has too many values.
  CategoryMap(const CategoryTable& own, const CategoryTable& known);

  // True if every category that occurs stays what it is.
  bool as_they_stand() const { return as_they_stand_; }
  // Values of `own` that `known` has not, rising.
  const std::vector<int64_t>& unknown_values() const { return unknown_values_; }
  // The category of all of them, and of what cannot be: one more than the last one of `known`.
  int64_t unknown() const { return unknown_; }
  int64_t To(int64_t category) const {
    if (as_they_stand_) return category;
    if (sparse_.empty()) {
      return category >= 0 && category < static_cast<int64_t>(dense_.size()) ? dense_[static_cast<size_t>(category)]
                                                                             : unknown_;
    }
    const auto found = sparse_.find(category);
    return found == sparse_.end() ? unknown_ : found->second;
  }

 private:
  bool as_they_stand_ = true;
  int64_t unknown_ = 0;
  std::vector<int64_t> unknown_values_;
  std::vector<int64_t> dense_;                   // by own category, where those are few
  std::unordered_map<int64_t, int64_t> sparse_;  // else of those that occur
};

}  // namespace permafrost::data
