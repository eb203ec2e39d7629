// The end of a unary handler.
// Threads: the handler's.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/call_limits.h"
#include "api/status.h"
#include "base/patience.h"
#include "base/status.h"

namespace permafrost::api {

// One that has its outcome at once.
inline grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// Returns how long a call may keep its client waiting for a locked database: four fifths of what its deadline leaves,
// five seconds at the most.
inline absl::Duration PatienceOf(const grpc::CallbackServerContext& context) {
  constexpr absl::Duration kMost = absl::Seconds(5);
  return std::min((absl::FromChrono(context.deadline()) - absl::Now()) * 0.8, kMost);
}

// Starts a call whose `body` may wait for a lock that is held while the disk is written: it runs on a thread of
// `workers`, and its outcome is the call's. It may fill the response, which lives until then, as the request does. It
// does not run if by then the client is gone or the deadline is over: nobody hears of its outcome, and a client that
// asks again must not find it done late. For the same reason it waits for a locked database for a part of the time that
// is left only (Patience), so that its client hears in time that nothing was done. ResourceExhausted (reason
// TOO_MANY_CALLS) where too many wait already, and of a connection too many (ConnectionLimit).
template <class Body>
grpc::ServerUnaryReactor* ReplyLater(grpc::CallbackServerContext* context, CallPool& workers, Body body) {
  const absl::Status admitted = workers.connections().Admit(*context).status();
  if (!admitted.ok()) return Reply(context, admitted);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool posted = workers.Post([context, reactor, body = std::move(body)] {
    if (context->IsCancelled()) {
      const char* const why = "the client gave the call up, or its deadline passed, before its turn came: not begun";
      return reactor->Finish(ToGrpcStatus(absl::CancelledError(why)));
    }
    const Patience patience(PatienceOf(*context), [context] { return !context->IsCancelled(); });
    reactor->Finish(ToGrpcStatus(WithoutThrowing("the call", body)));
  });
  if (!posted) {
    reactor->Finish(ToGrpcStatus(TooManyCalls("waiting calls", static_cast<int64_t>(workers.most_waiting()))));
  }
  return reactor;
}

}  // namespace permafrost::api
