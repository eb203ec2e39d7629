// Counts calls by method and code, and open calls.
// Threads: all functions and classes are thread-safe.
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

// Called once for each call, at the latest when its status is sent. `method` is one of RequestMethods() (methods.h)
// or "unknown". `code` is one of StatusCodeNames().
using RequestObserver = std::function<void(std::string_view method, std::string_view code, absl::Duration duration)>;

// Called with +1 when a stream of one of StreamMethods() begins, and with -1 when it has ended.
using StreamObserver = std::function<void(std::string_view method, int change)>;

// Called when a watch (one of WatchMethods()) skips a state because its client has not yet taken the previous state.
using DroppedStateObserver = std::function<void(std::string_view method)>;

// Returns the canonical names of all codes: "OK", "CANCELLED", ...
std::vector<std::string> StatusCodeNames();

// Counts every call, including streams and cancelled calls, by method and code, with its duration. Also counts the
// open streams. Logs each call that failed because of the server or its disk (INTERNAL, UNKNOWN, DATA_LOSS), with the
// client's address.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestMetrics(RequestObserver observer,
                                                                                          StreamObserver streams);

// Counts the calls that are being served. A server that shuts down waits for these calls, instead of leaving the wait
// to gRPC, which would also wait for idle connections.
class OpenCalls {
 public:
  OpenCalls();
  void Begin();
  void End();
  // Waits until no call is open, but no longer than `limit`, which may be infinite. Returns true if no call is open.
  bool AwaitNone(absl::Duration limit);

 private:
  std::mutex mu_;
  int open_ = 0;
  Event none_;
};

// Counts the calls of Permafrost's own services and Health/Check, which is answered at once. Does not count
// Health/Watch, which would never end. `calls` may outlive the server and this factory.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountOpenCalls(std::shared_ptr<OpenCalls> calls);

}  // namespace permafrost::api
