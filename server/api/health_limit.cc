#include "api/health_limit.h"

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>

#include <string>
#include <string_view>
#include <utility>

namespace permafrost::api {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr std::string_view kHealthWatch = "/grpc.health.v1.Health/Watch";

// One a watch, which ends with it.
class LimitedWatch final : public Interceptor {
 public:
  LimitedWatch(ServerRpcInfo* info, absl::StatusOr<CallLimit::Slot> slot) : info_(info), slot_(std::move(slot)) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (!slot_.ok() && methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      // The service then finds a call that was cancelled.
      grpc_call_cancel_with_status(info_->server_context()->c_call(), GRPC_STATUS_RESOURCE_EXHAUSTED,
                                   std::string(slot_.status().message()).c_str(), nullptr);
    }
    methods->Proceed();
  }

 private:
  ServerRpcInfo* const info_;
  const absl::StatusOr<CallLimit::Slot> slot_;
};

class HealthLimitFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit HealthLimitFactory(CallLimit& watches) : watches_(watches) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return info->method() == kHealthWatch ? new LimitedWatch(info, watches_.Take()) : nullptr;
  }

 private:
  CallLimit& watches_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeHealthLimit(CallLimit& watches) {
  return std::make_unique<HealthLimitFactory>(watches);
}

}  // namespace permafrost::api
