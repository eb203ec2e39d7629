#include "api/slow_calls.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::api {

SlowCalls::Slot::~Slot() {
  absl::MutexLock lock(&calls_.mu_);
  --calls_.taken_;
}

absl::StatusOr<std::unique_ptr<SlowCalls::Slot>> SlowCalls::Take() {
  absl::MutexLock lock(&mu_);
  if (taken_ == kMost) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          kMost, " verifications and samples run already; ask again when one of them has ended")),
                      "TOO_MANY_SLOW_CALLS");
  }
  ++taken_;
  return std::make_unique<Slot>(*this);
}

}  // namespace permafrost::api
