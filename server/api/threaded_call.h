// Calls whose work waits for a disk: each has a thread of its own, so that gRPC's never wait.
// Threads: safe anywhere.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/call_limits.h"

namespace permafrost::api {

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
