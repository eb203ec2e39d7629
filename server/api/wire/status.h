// Converts absl::Status to a gRPC status with google.rpc details in the trailer `grpc-status-details-bin`. Violations
// become BadRequest, and the reason becomes ErrorInfo (domain "permafrost.dev"). RetryInfo is added for UNAVAILABLE,
// and if a limit on calls or connections is reached, or no thread can be started.
// Threads: pure functions.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace permafrost::api {

// Reason of RESOURCE_EXHAUSTED when too many calls of one kind are open (call_limits.h).
inline constexpr char kTooManyCalls[] = "TOO_MANY_CALLS";
// Reason of RESOURCE_EXHAUSTED when a client calls on too many connections (call_limits.h).
inline constexpr char kTooManyConnections[] = "TOO_MANY_CONNECTIONS";
// Reason of RESOURCE_EXHAUSTED when the system has no thread for the call's work (unary.h).
inline constexpr char kNoThread[] = "NO_THREAD";

// Clips long texts. If the trailers exceeded 8 KiB, the client would drop them, and the error with them.
grpc::Status ToGrpcStatus(const absl::Status& from);

// Converts `status` like ToGrpcStatus, for a field of a message, but does not clip it. `status` must not be Ok.
void SetRpcStatus(const absl::Status& status, google::rpc::Status& out);

// Converts the status that another server sent: its code, message and reason.
absl::Status FromGrpcStatus(const grpc::Status& from);

// Returns the canonical name of `code`, such as "OK" or "CANCELLED"; "UNKNOWN" for a number that is not a code.
std::string StatusCodeName(grpc::StatusCode code);

}  // namespace permafrost::api
