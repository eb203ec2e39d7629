// The end of a unary handler that has its outcome at once.
// Threads: the handler's.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "api/status.h"

namespace permafrost::api {

inline grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace permafrost::api
