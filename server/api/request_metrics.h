// Counts every call by method and code, with its duration: unary ones, streams and cancelled ones alike; and the
// streams that are open. Logs each that is answered with a fault of the server or its disk (INTERNAL, UNKNOWN,
// DATA_LOSS), with the client's address. Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string_view>

#include "api/request_observer.h"

namespace permafrost::api {

// Returns the label under which a path on the wire is counted: "JobService/CreateJob", or "unknown", since any client
// can send any path.
std::string_view RequestLabel(std::string_view path);

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestMetrics(RequestObserver observer,
                                                                                          StreamObserver streams);

}  // namespace permafrost::api
