// Finds the field that makes a request too large for a server.
// Threads: pure functions.
#pragma once

#include "google/protobuf/message.h"
#include "grpcpp/support/status.h"

namespace permafrost::client {

// Bytes of a request, as the server takes it.
inline constexpr size_t kMaxRequestBytes = size_t{1} << 20;

// Ok for a request that a server takes; else RESOURCE_EXHAUSTED with the field that takes the most of it:
// "spec.labels: 2000004 bytes, and a request has room for 1048576 in all". A server alone cannot tell the field: it
// refuses such a message unread.
grpc::Status CheckRequestSize(const google::protobuf::Message& request);

}  // namespace permafrost::client
