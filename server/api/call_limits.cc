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

absl::StatusOr<CallLimit::Slot> CallLimit::Take(const grpc::CallbackServerContext& context) {
  if (!client_of_) return Take();
  PF_ASSIGN_OR_RETURN(const std::string client, client_of_(context));
  return TakeFor(client);
}

absl::StatusOr<CallLimit::Slot> CallLimit::TakeFor(const std::string& client) {
  // A limit of one leaves no part to others.
  const int most_of_one = most_ - most_ / 4;
  absl::MutexLock lock(&taken_->mu);
  if (taken_->all >= most_) {
    return TooManyCalls(calls_, most_);
  }
  if (!client.empty()) {
    int& of_client = taken_->by_client[client];
    if (of_client >= most_of_one) {
      return WithReason(
          absl::ResourceExhaustedError(absl::StrCat(most_of_one, " ", calls_, " of ", client,
                                                    " are open, the most of one client; ask again when one has ended")),
          kTooManyCalls, {{"calls", calls_}, {"limit", absl::StrCat(most_of_one)}, {"client", client}});
    }
    ++of_client;
  }
  ++taken_->all;
  // Points to nothing: only its destruction matters.
  return Slot(static_cast<const void*>(nullptr), [taken = taken_, client](const void*) {
    absl::MutexLock given_back(&taken->mu);
    --taken->all;
    if (client.empty()) return;
    const auto it = taken->by_client.find(client);
    if (--it->second == 0) taken->by_client.erase(it);
  });
}

}  // namespace permafrost::api
