#include "api/guard/call_counts.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "api/guard/methods.h"
#include "api/wire/status.h"
#include "base/monotonic.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost::api {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr absl::string_view kHealthCheck = "/grpc.health.v1.Health/Check";

bool IsFaultOfTheServer(grpc::StatusCode code) {
  return code == grpc::StatusCode::INTERNAL || code == grpc::StatusCode::UNKNOWN || code == grpc::StatusCode::DATA_LOSS;
}

// Records one call. gRPC runs the hooks of a call's operations on different threads, and destroys the interceptor
// after the last hook.
class Recorder final : public Interceptor {
 public:
  // `streams` is empty if the call does not stream.
  Recorder(ServerRpcInfo* info, std::string_view method, const RequestObserver& observer, StreamObserver streams)
      : info_(info), method_(method), observer_(observer), streams_(std::move(streams)) {
    if (streams_) streams_(method_, +1);
  }

  // If no status was sent, the client has gone.
  ~Recorder() override {
    if (!reported_) Report(grpc::StatusCode::CANCELLED);
    if (streams_) streams_(method_, -1);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // If the client has gone, the call counts as cancelled, whatever the handler answers.
      const bool cancelled = info_->server_context()->IsCancelled();
      const grpc::Status status = methods->GetSendStatus();
      Report(cancelled ? grpc::StatusCode::CANCELLED : status.error_code());
      if (IsFaultOfTheServer(status.error_code())) {
        telemetry::Log(telemetry::Severity::kError,
                       absl::StrCat(AbslView(method_), " of ", info_->server_context()->peer(), ": ",
                                    StatusCodeName(status.error_code()), ": ", status.error_message()));
      }
    }
    methods->Proceed();
  }

 private:
  void Report(grpc::StatusCode code) {
    reported_ = true;
    observer_(method_, StatusCodeName(code), watch_.Elapsed());
  }

  ServerRpcInfo* const info_;
  const std::string_view method_;
  const RequestObserver& observer_;
  const StreamObserver streams_;
  const Stopwatch watch_;
  bool reported_ = false;
};

class RecorderFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  RecorderFactory(RequestObserver observer, StreamObserver streams)
      : observer_(std::move(observer)), streams_(std::move(streams)) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const Method& method = FindMethod(info->method());
    return new Recorder(info, method.label, observer_, method.streams ? streams_ : StreamObserver());
  }

 private:
  const RequestObserver observer_;
  const StreamObserver streams_;
};

// Counts one call as open. gRPC creates an object for each call, and destroys it when the call ends.
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

std::vector<std::string> StatusCodeNames() {
  std::vector<std::string> names;
  for (int code = grpc::StatusCode::OK; code <= grpc::StatusCode::UNAUTHENTICATED; ++code) {
    names.push_back(StatusCodeName(static_cast<grpc::StatusCode>(code)));
  }
  return names;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestMetrics(RequestObserver observer,
                                                                                          StreamObserver streams) {
  return std::make_unique<RecorderFactory>(std::move(observer), std::move(streams));
}

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
