#include "api/guard/open_calls.h"

#include <utility>

#include "absl/strings/match.h"

namespace permafrost::api {
namespace {

using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr absl::string_view kHealthCheck = "/grpc.health.v1.Health/Check";

// Counts one call as open. gRPC makes one for each call, and destroys it when the call ends.
class OpenCall final : public Interceptor {
 public:
  explicit OpenCall(std::shared_ptr<OpenCalls> calls) : calls_(std::move(calls)) { calls_->Begin(); }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;
  ~OpenCall() override { calls_->End(); }
  void Intercept(InterceptorBatchMethods* methods) override { methods->Proceed(); }

 private:
  const std::shared_ptr<OpenCalls> calls_;
};

class OpenCallFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit OpenCallFactory(std::shared_ptr<OpenCalls> calls) : calls_(std::move(calls)) {}
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const absl::string_view method = info->method();
    const bool ends = absl::StartsWith(method, "/permafrost.") || method == kHealthCheck;
    return ends ? new OpenCall(calls_) : nullptr;
  }

 private:
  const std::shared_ptr<OpenCalls> calls_;
};

}  // namespace

OpenCalls::OpenCalls() { none_.Set(); }

void OpenCalls::Begin() {
  const std::lock_guard lock(mu_);
  if (open_++ == 0) none_.Reset();
}

void OpenCalls::End() {
  const std::lock_guard lock(mu_);
  if (--open_ == 0) none_.Set();
}

bool OpenCalls::AwaitNone(absl::Duration limit) { return none_.WaitFor(limit); }

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountOpenCalls(
    std::shared_ptr<OpenCalls> calls) {
  return std::make_unique<OpenCallFactory>(std::move(calls));
}

}  // namespace permafrost::api
