// Sends requests that change something. A retry after a lost answer is safe, and a request too large for the server is
// refused here. Threads: the caller's.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "client/session.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/status.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// A random (version 4) UUID.
std::string MakeUuid();

// A request ID for a job of this spec, the same each time: a command that is given again finds the job of the first
// one. `what` tells jobs of equal specs apart.
std::string RepeatableRequestId(std::string_view what, v1::JobSpec spec);

// `call` again while the server is not there just now, within the session's timeout. Only for calls that carry a
// request_id, or change nothing.
grpc::Status CallPatiently(Session& session, const std::function<grpc::Status(grpc::ClientContext*)>& call);

// The request ID makes a second attempt safe even where the first one's answer was lost.
grpc::Status CreateJob(Session& session, const v1::CreateJobRequest& request, v1::Job& job);

// Bytes of a request, as the server takes it.
inline constexpr size_t kMaxRequestBytes = size_t{1} << 20;

// Ok for a request that a server takes; else RESOURCE_EXHAUSTED with the field that takes the most of it:
// "spec.labels: 2000004 bytes, and a request has room for 1048576 in all". A server alone cannot tell the field: it
// refuses such a message unread.
grpc::Status CheckRequestSize(const google::protobuf::Message& request);

}  // namespace permafrost::client
