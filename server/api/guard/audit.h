// A line in the audit log for each call of a method that changes something and that the gate let in.
// Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>

#include "access/audit_log.h"
#include "access/gate.h"
#include "google/protobuf/message.h"

namespace permafrost::api {

// Borrows both for as long as the server lives.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeAudit(const access::Gate& gate,
                                                                                 access::AuditLog& audit);

// Returns what a request or an answer is about: its `name`, its `job_id` as "jobs/ID" (`dataset_id` as "datasets/ID"),
// or the name of what it holds; clipped. Empty: it says nothing.
std::string ResourceOf(const google::protobuf::Message& message);

}  // namespace permafrost::api
