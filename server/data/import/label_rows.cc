#include "data/import/label_rows.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "data/source/cell_number.h"

namespace permafrost::data {

absl::Status ParseLabels(const CsvRows& rows, std::string_view line, std::vector<float>& labels) {
  labels.clear();
  Cells cells(line);
  std::string_view cell;
  while (cells.Next(cell)) {
    if (cell.empty() || cell == "nan" || cell == "NaN" || cell == "NA") {
      labels.push_back(std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const auto value = ParseFinite(cell);
    if (!value) {
      return rows.Error(absl::StrCat("target ", labels.size() + 1),
                        WhyNotFinite(cell) == kBeyondFloat32
                            ? absl::StrCat(Quote(cell), " ", AbslView(kBeyondFloat32))
                            : absl::StrCat(Quote(cell), " is neither a finite number nor missing (empty, nan or NA)"));
    }
    labels.push_back(*value);
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
