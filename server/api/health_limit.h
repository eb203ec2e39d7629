// Bounds the watches of gRPC's own health service, whose calls no handler of ours sees.
// Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "api/call_limits.h"

namespace permafrost::api {

// Ends a Health/Watch that finds all of `watches` taken with RESOURCE_EXHAUSTED; an interceptor has no details to give.
// Borrows the limit.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeHealthLimit(CallLimit& watches);

}  // namespace permafrost::api
