// Counts every call by method and code, with its duration: unary ones, streams and cancelled ones alike.
// Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "api/request_observer.h"

namespace permafrost::api {

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestMetrics(RequestObserver observer);

}  // namespace permafrost::api
