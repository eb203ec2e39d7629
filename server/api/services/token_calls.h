// CreateToken, ListTokens and RevokeToken: the wire's words for a token store.
// Threads: gRPC's; what waits for the disk has a thread of its own.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "access/token_store.h"
#include "api/guard/call_limits.h"
#include "jobs/request_log.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::api {

// For a service's handlers to return. `tokens` null: UNIMPLEMENTED.
grpc::ServerUnaryReactor* CreateTokenCall(grpc::CallbackServerContext* context, CallLimit& limit,
                                          access::TokenStore* tokens, jobs::RequestLog& requests,
                                          const v1::CreateTokenRequest& request, v1::Token& response);
grpc::ServerUnaryReactor* ListTokensCall(grpc::CallbackServerContext* context, const access::TokenStore* tokens,
                                         v1::ListTokensResponse& response);
grpc::ServerUnaryReactor* RevokeTokenCall(grpc::CallbackServerContext* context, CallLimit& limit,
                                          access::TokenStore* tokens, jobs::RequestLog& requests,
                                          const v1::RevokeTokenRequest& request);

}  // namespace permafrost::api
