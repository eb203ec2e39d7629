// Sends requests that change something, in such a way that a retry after a lost answer is safe. A request that is too
// large for the server is refused here. Threads: runs on the caller's thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "client/session.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/status.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// Returns a random UUID (version 4).
std::string MakeUuid();

// Returns a request ID that depends only on the arguments. A repeated command thus finds the job that the first
// command made. `what` distinguishes jobs with equal specs.
std::string RepeatableRequestId(std::string_view what, v1::JobSpec spec);

// Makes the call. While the server is temporarily unreachable, repeats it within the session's timeout. Use it only
// for calls that carry a request_id or change nothing.
grpc::Status CallPatiently(Session& session, const std::function<grpc::Status(grpc::ClientContext*)>& call);

// Creates the job. The request ID makes a retry safe even if the first answer was lost.
grpc::Status CreateJob(Session& session, const v1::CreateJobRequest& request, v1::Job& job);

// The largest request that the server accepts, in bytes.
inline constexpr size_t kMaxRequestBytes = size_t{1} << 20;

// Returns OK for a request that is small enough. Errors: RESOURCE_EXHAUSTED that names the largest field of the
// request: "spec.labels: 2000004 bytes, and a request has room for 1048576 in all". The server alone could not name
// the field, because it refuses a message of that size unread.
grpc::Status CheckRequestSize(const google::protobuf::Message& request);

}  // namespace permafrost::client
