#include "data/store/feature_rows_reader.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "data/store/element_type.h"
#include "data/store/to_float.h"

namespace permafrost::data {

absl::Status ReadRows(const DenseFeatures& features, uint64_t begin, uint64_t end, float* out) {
  if (begin >= end) return absl::OkStatus();
  if (!features.scales.Touch(0, features.scales.size())) return features.scales.status();
  // In one go: its blocks may be single pages, and those of a mapping come one at a time.
  AdviseWillNeed(features.bytes.Reads(features.OffsetOf(begin), features.OffsetOf(end - 1) + features.row_bytes()));
  if (!features.bytes.Touch(features.OffsetOf(begin), features.OffsetOf(end - 1) + features.row_bytes())) {
    return features.bytes.status();
  }
  for (uint64_t row = begin, next; row < end; row = next) {
    // Scales are of one row.
    const uint64_t group = features.type == DataType::kInt8 ? 1 : features.groups.rows;
    next = group == 0 ? end : std::min(end, row - row % group + group);
    const auto count = static_cast<int64_t>(next - row) * features.width;
    ToFloat(features.type, features.bytes.data() + features.OffsetOf(row), count, out, features.scales.data());
    out += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<SparseRows> ReadRows(const SparseFeatures& features, uint64_t begin, uint64_t end) {
  SparseRows rows;
  if (!features.offsets.Touch(begin, end + 1)) return features.offsets.status();
  const uint64_t entries = features.columns.size(), first = std::min(features.offsets[begin], entries);
  // Made to rise within the columns: the file may change under the reading.
  uint64_t last = first;
  for (uint64_t row = begin; row <= end; ++row) {
    last = std::clamp(features.offsets[row], last, entries);
    rows.offsets.push_back(static_cast<int64_t>(last - first));
  }
  if (!features.columns.Touch(first, last)) return features.columns.status();
  rows.columns.assign(features.columns.data() + first, features.columns.data() + last);
  const auto widest = static_cast<uint32_t>(std::max<int64_t>(features.width, 1) - 1);
  for (uint32_t& column : rows.columns) column = std::min(column, widest);
  if (!features.values.empty()) {
    if (!features.values.Touch(first, last)) return features.values.status();
    rows.values.assign(features.values.data() + first, features.values.data() + last);
  }
  return rows;
}

}  // namespace permafrost::data
