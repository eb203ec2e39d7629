#include "api/call_limits.h"

#include "absl/strings/str_cat.h"
#include "api/status.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {

absl::Status TooManyCalls(std::string_view calls, int64_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(limit, " ", AbslView(calls),
                                                " are open, the most at once; ask again when one of them has ended")),
      kTooManyCalls, {{"calls", std::string(calls)}, {"limit", absl::StrCat(limit)}});
}

absl::StatusOr<CallLimit::Slot> CallLimit::Take() {
  int taken = taken_->load();
  do {
    if (taken >= most_) return TooManyCalls(calls_, most_);
  } while (!taken_->compare_exchange_weak(taken, taken + 1));
  // Points to nothing: only its destruction matters.
  return Slot(static_cast<const void*>(nullptr), [count = taken_](const void*) { --*count; });
}

}  // namespace permafrost::api
