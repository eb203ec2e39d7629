// Counts calls: each by method and code, and those that are open.
// Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/monotonic.h"

namespace permafrost::api {

// Called once a call, no later than its status is sent. `method` is one of RequestMethods() (methods.h) or "unknown",
// `code` one of StatusCodeNames().
using RequestObserver = std::function<void(std::string_view method, std::string_view code, absl::Duration duration)>;

// Called when a stream of one of StreamMethods() begins (+1) and when it is gone (-1).
using StreamObserver = std::function<void(std::string_view method, int change)>;

// Called when a watch, one of WatchMethods(), passes over a state since its client has not taken the one before.
using DroppedStateObserver = std::function<void(std::string_view method)>;

// "OK", "CANCELLED", ...: the canonical names of all codes.
std::vector<std::string> StatusCodeNames();

// Counts every call by method and code, with its duration: unary ones, streams and cancelled ones alike; and the
// streams that are open. Logs each that is answered with a fault of the server or its disk (INTERNAL, UNKNOWN,
// DATA_LOSS), with the client's address.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestMetrics(RequestObserver observer,
                                                                                          StreamObserver streams);

// The calls that are being served, so that a server that ends waits for them and for nothing else: gRPC would wait for
// connections on which nothing happens, too.
class OpenCalls {
 public:
  OpenCalls();
  void Begin();
  void End();
  // Waits until none is open, at most for `limit`, which may be infinite. Returns whether none is.
  bool AwaitNone(absl::Duration limit);

 private:
  std::mutex mu_;
  int open_ = 0;
  Event none_;
};

// Counts the calls of Permafrost's own services, and Health/Check, which is answered as soon as it is asked. Not
// Health/Watch, which would never end. `calls` may outlive the server, and calls what made it.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountOpenCalls(std::shared_ptr<OpenCalls> calls);

}  // namespace permafrost::api
