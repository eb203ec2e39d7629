#include "api/guard/request_metrics.h"

#include <grpcpp/server_context.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/wire/status.h"
#include "base/monotonic.h"
#include "base/string_view.h"
#include "permafrost/v1/census.pb.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/job.pb.h"
#include "permafrost/v1/plan.pb.h"
#include "permafrost/v1/program.pb.h"
#include "permafrost/v1/server.pb.h"
#include "permafrost/v1/worker.pb.h"
#include "telemetry/log.h"

namespace permafrost::api {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr std::string_view kUnknownMethod = "unknown";

struct Label {
  std::string name;
  bool streams = false;
};
using LabelsByPath = std::map<std::string, Label, std::less<>>;

// Path on the wire -> label. Bounded, since any client can send any path.
LabelsByPath MakeLabels() {
  LabelsByPath labels;
  for (const auto* file :
       {v1::Job::descriptor()->file(), v1::GraphCache::descriptor()->file(),
        v1::PlanGraphCacheResponse::descriptor()->file(), v1::CensusGraphCacheResponse::descriptor()->file(),
        v1::Dataset::descriptor()->file(), v1::Program::descriptor()->file(), v1::ServerInfo::descriptor()->file(),
        v1::RunRankRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        const auto* method = service->method(m);
        labels["/" + service->full_name() + "/" + method->name()] = {
            service->name() + "/" + method->name(), method->server_streaming() || method->client_streaming()};
      }
    }
  }
  labels["/grpc.health.v1.Health/Check"] = {"Health/Check", false};
  labels["/grpc.health.v1.Health/Watch"] = {"Health/Watch", true};
  return labels;
}

const LabelsByPath& Labels() {
  static const auto& labels = *new LabelsByPath(MakeLabels());
  return labels;
}

bool IsFaultOfTheServer(grpc::StatusCode code) {
  return code == grpc::StatusCode::INTERNAL || code == grpc::StatusCode::UNKNOWN || code == grpc::StatusCode::DATA_LOSS;
}

// One a call. gRPC runs hooks of a call's operations on different threads, but destroys the interceptor after the last.
class Recorder final : public Interceptor {
 public:
  // `streams`: empty for a call that is none.
  Recorder(ServerRpcInfo* info, std::string_view method, const RequestObserver& observer, StreamObserver streams)
      : info_(info), method_(method), observer_(observer), streams_(std::move(streams)) {
    if (streams_) streams_(method_, +1);
  }

  // A call whose status was never sent: the client had gone.
  ~Recorder() override {
    if (!reported_) Report(grpc::StatusCode::CANCELLED);
    if (streams_) streams_(method_, -1);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // Whatever a handler answers to a client that has gone, the call counts as cancelled.
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

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Factory(RequestObserver observer, StreamObserver streams)
      : observer_(std::move(observer)), streams_(std::move(streams)) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const auto it = Labels().find(std::string_view(info->method()));
    const bool streams = it != Labels().end() && it->second.streams;
    return new Recorder(info, RequestLabel(info->method()), observer_, streams ? streams_ : StreamObserver());
  }

 private:
  const RequestObserver observer_;
  const StreamObserver streams_;
};

}  // namespace

std::string_view RequestLabel(std::string_view path) {
  const auto it = Labels().find(path);
  return it == Labels().end() ? kUnknownMethod : std::string_view(it->second.name);
}

std::vector<std::string> RequestMethods() {
  std::vector<std::string> methods;
  for (const auto& [path, label] : Labels()) methods.push_back(label.name);
  return methods;
}

std::vector<std::string> StreamMethods() {
  std::vector<std::string> methods;
  for (const auto& [path, label] : Labels()) {
    if (label.streams) methods.push_back(label.name);
  }
  return methods;
}

std::vector<std::string> WatchMethods() {
  std::vector<std::string> methods = StreamMethods();
  std::erase_if(methods, [](const std::string& method) {
    return method.starts_with("Health/") || method.find("/Watch") == std::string::npos;
  });
  return methods;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRequestMetrics(RequestObserver observer,
                                                                                          StreamObserver streams) {
  return std::make_unique<Factory>(std::move(observer), std::move(streams));
}

}  // namespace permafrost::api
