#include "data/store/content_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/store_error.h"

namespace permafrost::data {
namespace {

template <class T>
BlockGuard::ContentCheck Below(std::span<const T> values, uint64_t bound, std::string what) {
  return [values, bound, what = std::move(what)](uint64_t begin, uint64_t end) {
    const auto block = values.subspan(begin / sizeof(T), (end - begin) / sizeof(T));
    // A maximum is found several values at a time.
    T largest = 0;
    for (const T value : block) largest = std::max(largest, value);
    if (block.empty() || largest < bound) return absl::OkStatus();
    const auto bad = std::ranges::find_if(block, [bound](T value) { return value >= bound; });
    return Mismatch(absl::StrCat(what, " ", begin / sizeof(T) + static_cast<uint64_t>(bad - block.begin())), *bad,
                    absl::StrCat("below ", bound));
  };
}

}  // namespace

BlockGuard::ContentCheck OffsetsCheck(std::span<const uint64_t> offsets, uint64_t total) {
  return [offsets, total](uint64_t begin_byte, uint64_t end_byte) {
    const uint64_t begin = begin_byte / sizeof(uint64_t), end = end_byte / sizeof(uint64_t);
    if (begin == 0 && offsets.front() != 0) return Mismatch("first offset", offsets.front(), 0);
    if (end == offsets.size() && offsets.back() != total) return Mismatch("last offset", offsets.back(), total);
    for (uint64_t i = std::max<uint64_t>(begin, 1); i < end; ++i) {
      if (offsets[i] < offsets[i - 1]) {
        return Mismatch(absl::StrCat("offset ", i), offsets[i], absl::StrCat("at least ", offsets[i - 1]));
      }
    }
    if (offsets[end - 1] > total) {
      return Mismatch(absl::StrCat("offset ", end - 1), offsets[end - 1], absl::StrCat("at most ", total));
    }
    return absl::OkStatus();
  };
}

BlockGuard::ContentCheck BelowCheck(std::span<const uint32_t> values, uint64_t bound, std::string what) {
  return Below(values, bound, std::move(what));
}
BlockGuard::ContentCheck BelowCheck(std::span<const uint64_t> values, uint64_t bound, std::string what) {
  return Below(values, bound, std::move(what));
}

absl::Status CheckRanges(SectionKind kind, const FeatureSummary& features) {
  for (const std::vector<double>* range : {&features.min, &features.max}) {
    if (range->empty() || std::ssize(*range) == features.width) continue;
    return Mismatch(SectionField(kind, "columns with a range in the summary"), range->size(), features.width);
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
