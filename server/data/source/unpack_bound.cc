#include "data/source/unpack_bound.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

uint64_t TimesOrMost(uint64_t a, uint64_t b) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return b != 0 && a > kMost / b ? kMost : a * b;
}

}  // namespace

UnpackBound::UnpackBound(uint64_t packed_bytes, const ImportLimits& limits)
    : packed_(packed_bytes),
      most_expansion_(limits.most_expansion),
      harmless_(limits.harmless_unpacked_bytes),
      most_(std::max(TimesOrMost(packed_bytes, limits.most_expansion), harmless_)) {}

absl::Status UnpackBound::Add(std::size_t bytes) {
  unpacked_ += bytes;
  if (unpacked_ <= most_) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("unpacks to more than ", most_, " bytes, of ", packed_,
                                     " packed ones; accepted: ", harmless_, ", or ", most_expansion_,
                                     " times the packed ones where that is more. If it is meant, unpack it or write it "
                                     "uncompressed, and import that")),
                    kUnpacksTooFar, {{"packed_bytes", absl::StrCat(packed_)}, {"most_bytes", absl::StrCat(most_)}});
}

}  // namespace permafrost::data
