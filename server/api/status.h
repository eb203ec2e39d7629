// absl::Status as a gRPC status with google.rpc details in the trailer `grpc-status-details-bin`: BadRequest from
// violations, ErrorInfo (domain "permafrost.dev") from the reason, RetryInfo for UNAVAILABLE.
// Threads: pure functions.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace permafrost::api {

// Long texts are clipped, since a client drops trailers above 8 KiB and with them the error.
grpc::Status ToGrpcStatus(const absl::Status& status);

// "OK", "CANCELLED", ...: the canonical names; "UNKNOWN" for a number that is none of them.
std::string StatusCodeName(grpc::StatusCode code);

}  // namespace permafrost::api
