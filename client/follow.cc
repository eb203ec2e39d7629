#include "client/follow.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/format.h"

namespace permafrost::client {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);

// Whether the server, rather than the request, is what failed. A daemon that shuts down cancels its streams, and one
// that drains may end them as if all were well.
bool ServerWentAway(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Reconnect::Alive() {
  if (lost_ != absl::InfinitePast() && !session_.json()) {
    session_.terminal().Note(absl::StrCat("permafrost: ", session_.options().server, " is back"));
  }
  lost_ = absl::InfinitePast();
}

std::optional<FollowResult> Reconnect::Ended(const grpc::Status& status) {
  if (session_.interrupt().requested()) return FollowResult{FollowEnd::kInterrupted, {}};
  const std::string& address = session_.options().server;
  if (!ServerWentAway(status)) {
    return FollowResult{FollowEnd::kFailed, RpcFailure(status, {address, /*connected=*/true, absl::ZeroDuration()})};
  }
  const absl::Time now = absl::Now();
  if (lost_ == absl::InfinitePast()) {
    lost_ = now;
    backoff_ = kFirstBackoff;
    if (!session_.json() && window_ > absl::ZeroDuration()) {
      const std::string why = status.error_message().empty() ? "the stream ended" : OneLine(status.error_message());
      session_.terminal().Note(absl::StrCat("permafrost: lost the server at ", address, " (", why,
                                            "); trying again for ", EtaText(window_)));
    }
  }
  const absl::Duration left = lost_ + window_ - now;
  if (left <= absl::ZeroDuration()) return FollowResult{FollowEnd::kFailed, UnreachableFailure(address)};
  if (session_.interrupt().WaitFor(std::min(backoff_, left))) return FollowResult{FollowEnd::kInterrupted, {}};
  backoff_ = std::min(backoff_ * 2, kMaxBackoff);
  return std::nullopt;
}

}  // namespace permafrost::client
