// Three ways to answer a unary call: at once, on a thread of a pool, or on a thread of the call's own.
// Threads: all functions are thread-safe.
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

// Answers a call whose outcome is already known.
inline grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// Returns how long a call may wait for a locked database: 80 % of the time until its deadline, at most five seconds.
inline absl::Duration PatienceOf(const grpc::CallbackServerContext& context) {
  constexpr absl::Duration kMost = absl::Seconds(5);
  return std::min((absl::FromChrono(context.deadline()) - absl::Now()) * 0.8, kMost);
}

// Answers a call whose `body` may wait for a lock that is held during disk writes. `body` runs on a thread of
// `workers`, may fill the response, and returns the call's status. Request and response live until the call is
// finished.
// If the client has gone, or the deadline has passed, before a thread is free, `body` does not run. A client that
// asks again must not find that the first call did the work late. For the same reason, `body` waits for a locked
// database only for part of the remaining time (Patience): the client then learns in time that nothing was done.
// Errors: ResourceExhausted (reason TOO_MANY_CALLS) if too many calls wait already; also the errors of
// ConnectionLimit.
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

// The functions below are for calls whose work waits for a disk. Each call has its own thread, so that gRPC's threads
// never wait.

// Returns ResourceExhausted (reason NO_THREAD), naming `what` ("the deletion of datasets/zinc"), the system's reason
// `why` and what to do about it.
absl::Status NoThreadError(std::string_view what, std::string_view why);
// Errors: NoThreadError, if the system cannot start a thread.
absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> body);

// Returns the reactor of a unary handler. `body` runs on the call's own thread, may fill the response, and returns
// the call's status; an exception fails the call. The response lives until the call is finished. The call holds
// `slot`. `body` waits for a locked database as in ReplyLater, so that nothing is stored for a client that has gone.
grpc::ServerUnaryReactor* StartThreadedCall(grpc::CallbackServerContext* context, std::string_view what,
                                            CallLimit::Slot slot, std::function<absl::Status()> body);

}  // namespace permafrost::api
