// How a unary handler ends: at once, on a thread of the pool, or on a thread of its own.
// Threads: safe anywhere.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/guard/call_limits.h"
#include "api/wire/status.h"
#include "base/monotonic.h"
#include "base/status.h"

namespace permafrost::api {

// Answers a call whose outcome is known at once.
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

// For calls whose work waits for a disk: each has a thread of its own, so that gRPC's never wait.

// ResourceExhausted (reason NO_THREAD), naming `what` ("the deletion of datasets/zinc"), the system's reason and what
// to do about it.
absl::Status NoThreadError(std::string_view what, std::string_view why);
// Errors: NoThreadError, where the system has no thread to give.
absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> body);

// For a unary handler to return: `body` runs on a thread of its own, holding `slot`, and its outcome is the call's;
// what it throws fails the call. It may fill the response, which lives until the call is finished. For a locked
// database it waits as ReplyLater's body does, so that nothing is stored for a client that has gone.
grpc::ServerUnaryReactor* StartThreadedCall(grpc::CallbackServerContext* context, std::string_view what,
                                            CallLimit::Slot slot, std::function<absl::Status()> body);

}  // namespace permafrost::api
