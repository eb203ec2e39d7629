// Calls that change something, safely against lost answers.
// Threads: the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "client/session.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// A random (version 4) UUID.
std::string MakeUuid();
// The UUID (of version 4's form) of 128 bits.
std::string UuidOf(uint64_t high, uint64_t low);

// `call` again while the server is not there just now, within the session's timeout. Only for calls that carry a
// request_id, or change nothing.
grpc::Status CallPatiently(Session& session, const std::function<grpc::Status(grpc::ClientContext*)>& call);

// The request ID makes a second attempt safe even where the first one's answer was lost.
grpc::Status CreateJob(Session& session, const v1::CreateJobRequest& request, v1::Job& job);

}  // namespace permafrost::client
