// Writes an audit line for each admitted call of a method that changes something.
// Threads: all functions are thread-safe.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>

#include "access/audit_log.h"
#include "access/gate.h"
#include "google/protobuf/message.h"

namespace permafrost::api {

// Borrows both arguments for the lifetime of the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeAudit(const access::Gate& gate,
                                                                                 access::AuditLog& audit);

// Returns the clipped name of the resource that a request or response is about. The name comes from the message's
// `name`, from its `job_id` ("jobs/ID") or `dataset_id` ("datasets/ID"), or from the `name` in its field `job` or
// `start`. Returns an empty text if the message names no resource.
std::string ResourceOf(const google::protobuf::Message& message);

}  // namespace permafrost::api
