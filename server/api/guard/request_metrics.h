// Counts every call by method and code, with its duration: unary ones, streams and cancelled ones alike; and the
// streams that are open. Logs each that is answered with a fault of the server or its disk (INTERNAL, UNKNOWN,
// DATA_LOSS), with the client's address. Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace permafrost::api {

// Called once a call, no later than its status is sent. `method` is one of RequestMethods() or "unknown", `code` one of
// StatusCodeNames().
using RequestObserver = std::function<void(std::string_view method, std::string_view code, absl::Duration duration)>;

// Called when a stream of one of StreamMethods() begins (+1) and when it is gone (-1).
using StreamObserver = std::function<void(std::string_view method, int change)>;

// Called when a watch, one of WatchMethods(), passes over a state since its client has not taken the one before.
using DroppedStateObserver = std::function<void(std::string_view method)>;

// "JobService/CreateJob", ...: every method of permafrost.v1 and of the health service.
std::vector<std::string> RequestMethods();
// The methods that stream, in either direction.
std::vector<std::string> StreamMethods();
// The methods that tell a resource as it is and each change of it.
std::vector<std::string> WatchMethods();

// "OK", "CANCELLED", ...: the canonical names of all codes.
std::vector<std::string> StatusCodeNames();

// Returns the label under which a path on the wire is counted: "JobService/CreateJob", or "unknown", since any client
// can send any path.
std::string_view RequestLabel(std::string_view path);

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestMetrics(RequestObserver observer,
                                                                                          StreamObserver streams);

}  // namespace permafrost::api
