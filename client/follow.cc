#include "client/follow.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/format.h"

namespace permafrost::client {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);

// Returns whether the stream ended because of the server and not because of the request. A daemon that shuts down
// cancels its streams. A daemon that drains may end them with OK. If a client was suspended for minutes, the daemon
// aborts its stream.
bool ServerWentAway(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::ABORTED:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Reconnect::Alive() {
  if (lost_ && !session_.json()) {
    session_.terminal().Note(absl::StrCat("permafrost: ", session_.options().server, " is back"));
  }
  lost_.reset();
}

std::optional<FollowResult> Reconnect::Ended(const grpc::Status& status) {
  if (session_.interrupt().requested()) return FollowResult{FollowEnd::kInterrupted, {}};
  const std::string& address = session_.options().server;
  if (!ServerWentAway(status)) {
    return FollowResult{FollowEnd::kFailed, RpcFailure(status, {address, /*connected=*/true, absl::ZeroDuration()})};
  }
  if (!lost_) {
    lost_.emplace();
    backoff_ = kFirstBackoff;
    if (!session_.json() && window_ > absl::ZeroDuration()) {
      const std::string why = status.error_message().empty() ? "the stream ended" : OneLine(status.error_message());
      session_.terminal().Note(absl::StrCat("permafrost: lost the server at ", address, " (", why,
                                            "); trying again for ", EtaText(window_)));
    }
  }
  const absl::Duration left = window_ - lost_->Elapsed();
  if (left <= absl::ZeroDuration()) {
    // If the server itself ended the stream, its answer says more than "unreachable".
    const bool ended_by_server = status.error_code() == grpc::StatusCode::ABORTED;
    return FollowResult{FollowEnd::kFailed,
                        ended_by_server ? RpcFailure(status, {address, /*connected=*/true, absl::ZeroDuration()})
                                        : UnreachableFailure(address, /*tls=*/false, session_.name())};
  }
  if (session_.interrupt().WaitFor(std::min(backoff_, left))) return FollowResult{FollowEnd::kInterrupted, {}};
  backoff_ = std::min(backoff_ * 2, kMaxBackoff);
  return std::nullopt;
}

void TellPassedOver(Session& session, const grpc::ClientContext& ended) {
  if (session.json()) return;
  const auto& trailers = ended.GetServerTrailingMetadata();
  const auto dropped = trailers.find("permafrost-dropped-states");
  if (dropped == trailers.end()) return;
  session.terminal().ClearLive();
  const std::string line =
      absl::StrCat("permafrost: ", OneLine(std::string_view(dropped->second.data(), dropped->second.size())),
                   " changes were passed over: this client took them more slowly than they came\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace permafrost::client
