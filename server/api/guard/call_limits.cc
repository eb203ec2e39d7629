#include "api/guard/call_limits.h"

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/wire/status.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {

absl::Status TooManyCalls(std::string_view calls, int64_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(limit, " ", AbslView(calls),
                                                " are open, the most at once; ask again when one of them has ended")),
      kTooManyCalls, {{"calls", std::string(calls)}, {"limit", absl::StrCat(limit)}});
}

absl::StatusOr<CallLimit::Slot> CallLimit::Take(const grpc::CallbackServerContext& context) {
  if (!client_of_) return Take();
  PF_ASSIGN_OR_RETURN(const std::string client, client_of_(context));
  return TakeFor(client);
}

absl::StatusOr<CallLimit::Slot> CallLimit::TakeFor(const std::string& client) {
  // A limit of one leaves no part to others.
  const int most_of_one = most_ - most_ / 4;
  absl::MutexLock lock(&taken_->mu);
  if (taken_->all >= most_) {
    return TooManyCalls(calls_, most_);
  }
  if (!client.empty()) {
    int& of_client = taken_->by_client[client];
    if (of_client >= most_of_one) {
      return WithReason(
          absl::ResourceExhaustedError(absl::StrCat(most_of_one, " ", calls_, " of ", client,
                                                    " are open, the most of one client; ask again when one has ended")),
          kTooManyCalls, {{"calls", calls_}, {"limit", absl::StrCat(most_of_one)}, {"client", client}});
    }
    ++of_client;
  }
  ++taken_->all;
  // Points to nothing: only its destruction matters.
  return Slot(static_cast<const void*>(nullptr), [taken = taken_, client](const void*) {
    absl::MutexLock given_back(&taken->mu);
    --taken->all;
    if (client.empty()) return;
    const auto it = taken->by_client.find(client);
    if (--it->second == 0) taken->by_client.erase(it);
  });
}

namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr std::string_view kHealthWatch = "/grpc.health.v1.Health/Watch";

// Counts one watch. gRPC makes one for each watch, and destroys it when the watch ends.
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
