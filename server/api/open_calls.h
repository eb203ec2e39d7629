// The calls that are being served, so that a server that ends waits for them and for nothing else: gRPC would wait for
// connections on which nothing happens, too.
// Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "absl/time/time.h"

namespace permafrost::api {

class OpenCalls {
 public:
  void Begin();
  void End();
  // Until none is open, at most for `limit`. Returns whether none is.
  bool AwaitNone(absl::Duration limit);

 private:
  std::mutex mu_;
  std::condition_variable none_;
  int open_ = 0;
};

// Counts the calls of Permafrost's own services, and Health/Check, which is answered as soon as it is asked. Not
// Health/Watch, which would never end. `calls` may outlive the server, and calls what made it.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountOpenCalls(std::shared_ptr<OpenCalls> calls);

}  // namespace permafrost::api
