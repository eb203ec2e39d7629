// absl::Status as a gRPC status with google.rpc details in the trailer `grpc-status-details-bin`: BadRequest from
// violations, ErrorInfo (domain "permafrost.dev") from the reason, RetryInfo for UNAVAILABLE and for a call or a
// connection too many, or a thread that is not to be had.
// Threads: pure functions.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace permafrost::api {

// Reason of the RESOURCE_EXHAUSTED that refuses a call too many of its kind (call_limits.h).
inline constexpr char kTooManyCalls[] = "TOO_MANY_CALLS";
// The reason that refuses a call on a connection too many of its client (call_limits.h).
inline constexpr char kTooManyConnections[] = "TOO_MANY_CONNECTIONS";
// The reason that refuses a call if the system does not give its work a thread (unary.h).
inline constexpr char kNoThread[] = "NO_THREAD";

// Long texts are clipped, since a client drops trailers above 8 KiB and with them the error.
grpc::Status ToGrpcStatus(const absl::Status& from);

// The same for a field of a message: nothing is clipped. `status`: not Ok.
void SetRpcStatus(const absl::Status& status, google::rpc::Status& out);

// Returns what another server answered: code, message and reason.
absl::Status FromGrpcStatus(const grpc::Status& from);

// "OK", "CANCELLED", ...: the canonical names; "UNKNOWN" for a number that is none of them.
std::string StatusCodeName(grpc::StatusCode code);

}  // namespace permafrost::api
