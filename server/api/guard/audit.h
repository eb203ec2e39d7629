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

// Returns the resource that a request or response is about, clipped. It is the `name`, the `job_id` as "jobs/ID" (or
// `dataset_id` as "datasets/ID"), or the name of the contained job or start. Empty: the message names no resource.
std::string ResourceOf(const google::protobuf::Message& message);

}  // namespace permafrost::api
