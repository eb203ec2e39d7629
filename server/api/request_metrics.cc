#include "api/request_metrics.h"

#include <grpcpp/server_context.h>

#include <map>
#include <utility>

#include "api/status.h"
#include "base/monotonic.h"
#include "permafrost/v1/census.pb.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/job.pb.h"
#include "permafrost/v1/plan.pb.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::api {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr std::string_view kUnknownMethod = "unknown";

// Path on the wire -> label. Bounded, since any client can send any path.
std::map<std::string, std::string, std::less<>> MakeLabels() {
  std::map<std::string, std::string, std::less<>> labels;
  for (const auto* file :
       {v1::Job::descriptor()->file(), v1::GraphCache::descriptor()->file(),
        v1::PlanGraphCacheResponse::descriptor()->file(), v1::CensusGraphCacheResponse::descriptor()->file(),
        v1::Dataset::descriptor()->file(), v1::ServerInfo::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        const std::string& method = service->method(m)->name();
        labels["/" + service->full_name() + "/" + method] = service->name() + "/" + method;
      }
    }
  }
  labels["/grpc.health.v1.Health/Check"] = "Health/Check";
  labels["/grpc.health.v1.Health/Watch"] = "Health/Watch";
  return labels;
}

const std::map<std::string, std::string, std::less<>>& Labels() {
  static const auto& labels = *new std::map<std::string, std::string, std::less<>>(MakeLabels());
  return labels;
}

// One a call. gRPC runs hooks of a call's operations on different threads, but destroys the interceptor after the last.
class Recorder final : public Interceptor {
 public:
  Recorder(ServerRpcInfo* info, std::string_view method, const RequestObserver& observer)
      : info_(info), method_(method), observer_(observer) {}

  // A call whose status was never sent: the client had gone.
  ~Recorder() override {
    if (!reported_) Report(grpc::StatusCode::CANCELLED);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // Whatever a handler says to a client that has gone, the call was cancelled.
      const bool cancelled = info_->server_context()->IsCancelled();
      Report(cancelled ? grpc::StatusCode::CANCELLED : methods->GetSendStatus().error_code());
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
  const Stopwatch watch_;
  bool reported_ = false;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(RequestObserver observer) : observer_(std::move(observer)) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new Recorder(info, RequestLabel(info->method()), observer_);
  }

 private:
  const RequestObserver observer_;
};

}  // namespace

std::string_view RequestLabel(std::string_view path) {
  const auto it = Labels().find(path);
  return it == Labels().end() ? kUnknownMethod : std::string_view(it->second);
}

std::vector<std::string> RequestMethods() {
  std::vector<std::string> methods;
  for (const auto& [path, label] : Labels()) methods.push_back(label);
  return methods;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestMetrics(RequestObserver observer) {
  return std::make_unique<Factory>(std::move(observer));
}

}  // namespace permafrost::api
