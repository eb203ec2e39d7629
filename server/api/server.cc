#include "api/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/time.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "api/guard/audit.h"
#include "api/guard/call_counts.h"
#include "api/guard/call_limits.h"
#include "api/guard/credentials.h"
#include "api/guard/unix_socket.h"
#include "api/services/dataset_service.h"
#include "api/services/graph_cache_service.h"
#include "api/services/job_service.h"
#include "api/services/program_service.h"
#include "api/services/server_service.h"
#include "api/services/worker_service.h"
#include "api/streams/server_stream.h"
#include "base/host_port.h"
#include "base/status.h"
#include "permafrost/v1/services.h"

namespace permafrost::api {
namespace {

// The most bytes of a request. Requests hold specs, not data.
constexpr int kMaxRequestBytes = 1 << 20;
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// Clients may ping at this interval without being disconnected.
constexpr int kMinClientPingMs = 10'000;
// The most threads of gRPC's synchronous services. Reflection is the only such service, and each of its open streams
// holds a thread. Beyond this number, reflection answers RESOURCE_EXHAUSTED. Our own calls and health checks use
// callbacks, and need none of these threads.
constexpr int kMaxReflectionThreads = 8;
// The time that Shutdown gives the last answers to be sent. It is short, because gRPC waits for the whole time if
// connections are idle.
constexpr absl::Duration kFlushTime = absl::Milliseconds(100);

// Returns the reason why binding failed. gRPC reports only the failure, so this function tries to bind once more.
std::string WhyNotBound(const HostPort& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  if (const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return gai_strerror(error);
  }
  std::string why = "the address cannot be bound";
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    const int on = 1;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool bound = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1) == 0;
    if (!bound) why = std::strerror(errno);
    if (fd >= 0) close(fd);
    if (!bound) break;
  }
  freeaddrinfo(found);
  return why;
}

// Removes reflection from one server. Before main, gRPC's library registers reflection with every server of the
// process.
class NoReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

class GrpcServer final : public Server {
 public:
  GrpcServer(ServerOptions options, jobs::JobManager& jobs, data::Catalog& catalog)
      : access_(std::move(options.access)),
        calls_of_a_connection_(options.limits.calls_of_a_connection),
        idle_(options.limits.idle),
        limits_(options.limits,
                [this](const grpc::CallbackServerContext& context) {
                  return ClientOf(gate(), context, context.client_metadata());
                }),
        streams_(
            options.limits.unread,
            [this](const grpc::CallbackServerContext& context) {
              return StillAdmitted(gate(), context, context.client_metadata());
            },
            options.observe_dropped ? std::move(options.observe_dropped) : [](std::string_view) {}),
        job_service_(options.default_graph_cache, jobs, streams_, limits_),
        graph_cache_service_(jobs, streams_, limits_),
        plan_service_(options.default_graph_cache, jobs, limits_),
        census_service_(options.default_graph_cache, jobs, limits_),
        dataset_service_(catalog, options.uploads, jobs, streams_, limits_, options.limits.unread),
        program_service_(options.programs, jobs.requests(), streams_, limits_, options.limits.unread),
        worker_service_({.version = options.info.version,
                         .torch_version = options.info.torch_version,
                         .device = options.info.device,
                         .instance = options.info.instance},
                        options.default_graph_cache, jobs, streams_, limits_),
        server_service_(std::move(options.info), std::move(options.device_state), std::move(options.request_drain),
                        jobs, catalog, access_.tokens, std::move(options.make_backup), std::move(options.clock),
                        streams_, limits_),
        address_(std::move(options.address)),
        observer_(std::move(options.observe_request)),
        stream_observer_(std::move(options.observe_stream)) {}

  ~GrpcServer() override {
    if (server_) Shutdown(absl::ZeroDuration());
  }

  absl::Status Start() {
    // These two settings hold for the whole process, and are read when a server is built.
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    if (!access_.reflection) builder.SetOption(std::make_unique<NoReflection>());
    PF_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(address_));
    int port = 0;
    builder.AddListeningPort(FormatHostPort(address), Credentials(), &port);
    int socket = 1;
    if (!access_.socket.empty()) {
      PF_RETURN_IF_ERROR(PrepareSocket(access_.socket));
      builder.AddListeningPort(SocketUri(access_.socket), grpc::InsecureServerCredentials(), &socket);
    }
    builder.RegisterService(&job_service_);
    builder.RegisterService(&graph_cache_service_);
    builder.RegisterService(&plan_service_);
    builder.RegisterService(&census_service_);
    builder.RegisterService(&dataset_service_);
    builder.RegisterService(&program_service_);
    builder.RegisterService(&worker_service_);
    builder.RegisterService(&server_service_);
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(kMaxReflectionThreads);
    builder.SetResourceQuota(quota);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, calls_of_a_connection_);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(absl::ToInt64Milliseconds(idle_)));
    // Port reuse is off, because a second daemon would otherwise silently share the port and get half of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Keepalive detects a watcher whose machine has vanished, so that its stream is freed.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinClientPingMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
    if (observer_) interceptors.push_back(MakeRequestMetrics(observer_, stream_observer_));
    interceptors.push_back(CountOpenCalls(calls_));
    interceptors.push_back(MakeHealthLimit(limits_.health_watches));
    if (access_.audit != nullptr) interceptors.push_back(MakeAudit(gate(), *access_.audit));
    builder.experimental().SetInterceptorCreators(std::move(interceptors));
    server_ = builder.BuildAndStart();
    if (port != 0 && socket == 0) {
      server_.reset();
      return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", access_.socket.string()));
    }
    if (!server_ || port == 0) {
      server_.reset();
      return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", address_, ": ", WhyNotBound(address)));
    }
    if (!access_.socket.empty()) PF_RETURN_IF_ERROR(CloseToOthers(access_.socket));
    address.port = port;
    address_ = FormatHostPort(address);
    server_service_.SetListenAddress(address_);
    SetServing(true);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void SetNotServing() override {
    absl::MutexLock lock(&health_mu_);
    ends_ = true;
    SetServing(false);
  }

  void SetDeviceHealthy(bool healthy) override {
    absl::MutexLock lock(&health_mu_);
    if (ends_) return;
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    for (const char* service : {"", v1::JobService::service_full_name()}) health->SetServingStatus(service, healthy);
  }

  void Shutdown(absl::Duration grace) override {
    SetNotServing();
    streams_.StopAll();
    calls_->AwaitNone(grace);
    // The deadline is given as a time span, so that a jump of the wall clock does not move it.
    const absl::Duration flush = std::min(grace, kFlushTime);
    server_->Shutdown(gpr_time_from_nanos(absl::ToInt64Nanoseconds(flush), GPR_TIMESPAN));
    server_->Wait();
    server_.reset();
  }

 private:
  // Without a gate in the options, every caller is an admin.
  const access::Gate& gate() const { return access_.gate == nullptr ? open_gate_ : *access_.gate; }

  std::shared_ptr<grpc::ServerCredentials> Credentials() {
    const GateKeeper keeper{.gate = &gate(), .audit = access_.audit, .observe_request = observer_};
    if (access_.certificates == nullptr) return PlainCredentials(keeper);
    certificates_ = std::make_unique<CertificateSource>(*access_.certificates);
    return TlsCredentials(keeper, *certificates_);
  }

  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    for (const auto* service : ContractServices()) health->SetServingStatus(service->full_name(), serving);
  }

  const AccessOptions access_;
  const access::Gate open_gate_{{.auth = access::Auth::kNone, .certificate_role = std::nullopt}, nullptr};
  const int calls_of_a_connection_;
  const absl::Duration idle_;
  CallLimits limits_;
  StreamSet streams_;
  const std::shared_ptr<OpenCalls> calls_ = std::make_shared<OpenCalls>();
  JobService job_service_;
  GraphCacheService graph_cache_service_;
  PlanService plan_service_;
  CensusService census_service_;
  DatasetService dataset_service_;
  ProgramService program_service_;
  WorkerService worker_service_;
  ServerService server_service_;
  std::string address_;
  const RequestObserver observer_;
  const StreamObserver stream_observer_;
  // Declared before `server_`, so that it outlives the server, whose connections get certificates from it.
  std::unique_ptr<CertificateSource> certificates_;
  std::unique_ptr<grpc::Server> server_;
  absl::Mutex health_mu_;
  bool ends_ ABSL_GUARDED_BY(health_mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, jobs::JobManager& jobs,
                                                      data::Catalog& catalog) {
  auto server = std::make_unique<GrpcServer>(std::move(options), jobs, catalog);
  PF_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace permafrost::api
