// Categories as the sections of a store's file.
// Threads: pure functions.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "data/store/categories.h"
#include "data/store/store_file.h"

namespace permafrost::data {

// The texts of kNumberedCategories and kSeenCategories; empty where there is no such table.
struct CategorySections {
  std::string numbered, seen;
};
CategorySections SectionsOf(const Categories& categories);

// Makes the types and widths of the features those of `summary`, of either kind, and tells it of the tables.
template <class Summary>
void TakeCategories(Categories& categories, Summary& summary) {
  for (const auto& [features, of_summary] :
       {std::pair(&categories.node, &summary.node_features), std::pair(&categories.edge, &summary.edge_features)}) {
    features->type = of_summary->type;
    features->width = of_summary->width;
    of_summary->categories = Summarize(*features);
  }
  summary.categories_known = true;
}

// All tables of a file, beside features of these types and widths, which have no tables yet. Errors: DataLoss naming
// the file and the section.
absl::StatusOr<Categories> ReadCategories(const StoreFile& file, Categories features);

}  // namespace permafrost::data
