// The calls that are being served, so that a server that ends waits for them and for nothing else: gRPC would wait for
// connections on which nothing happens, too.
// Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <mutex>

#include "absl/time/time.h"
#include "base/monotonic.h"

namespace permafrost::api {

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
