// The gRPC server: the services, health, reflection and the request metrics behind one address and a unix socket.
// Threads: all methods are safe anywhere; Shutdown once. Handlers run on gRPC's threads, whose number does not depend
// on the number of open streams; reflection, which holds a thread a stream, is served to a few clients at a time and
// refused with RESOURCE_EXHAUSTED beyond. Borrows the job manager and the catalog until destroyed.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "access/audit_log.h"
#include "access/gate.h"
#include "access/tls.h"
#include "access/token_store.h"
#include "api/guard/call_counts.h"
#include "api/guard/call_limits.h"
#include "api/services/daemon_facts.h"
#include "base/device.h"
#include "data/catalog/catalog.h"
#include "data/catalog/upload_store.h"
#include "jobs/job_manager.h"
#include "jobs/program_store.h"
#include "spec/policy.h"

namespace permafrost::api {

// Decides who may call, and how connections are protected. Borrowed as the catalog is.
struct AccessOptions {
  // Null: every caller is an admin.
  const access::Gate* gate = nullptr;
  // Null: CreateToken and its like are UNIMPLEMENTED.
  access::TokenStore* tokens = nullptr;
  // Null: nothing is audited.
  access::AuditLog* audit = nullptr;
  // Null: plain text.
  access::CertificateFiles* certificates = nullptr;
  // Path of the unix socket, whose callers are admins; empty: there is none.
  std::filesystem::path socket;
  // True: clients without the proto files may ask for them.
  bool reflection = true;
};

struct ServerOptions {
  std::string address = "127.0.0.1:0";  // host:port; port 0 picks one
  ServerInfo info;
  // Policy of a job's graph cache where its spec does not say.
  spec::PolicyOptions default_graph_cache;
  RequestObserver observe_request;                                           // must not block
  StreamObserver observe_stream;                                             // as that
  DroppedStateObserver observe_dropped;                                      // as that
  std::function<DeviceState()> device_state = [] { return DeviceState(); };  // asked on any thread
  std::function<void()> request_drain;                                       // as ServerService
  MakeBackup make_backup;                                                    // empty: Backup is UNIMPLEMENTED
  ClockWatch clock;
  CallLimitOptions limits;
  AccessOptions access;
  // Borrowed as the catalog is. Null: uploads are refused.
  data::UploadStore* uploads = nullptr;
  // Borrowed as the catalog is. Null: ProgramService is UNIMPLEMENTED.
  jobs::ProgramStore* programs = nullptr;
};

class Server {
 public:
  // Serves from here on. Errors: FailedPrecondition naming the address and the system's reason if it cannot be bound; a
  // port that another process serves is refused, and so is a socket (PrepareSocket).
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, jobs::JobManager& jobs,
                                                       data::Catalog& catalog);
  virtual ~Server() = default;  // as Shutdown without grace

  // host:port as bound.
  virtual const std::string& address() const = 0;
  // Health of the server and of each service, for load balancers; calls are still served.
  virtual void SetNotServing() = 0;
  // Health of the server as a whole and of JobService, whose jobs get nowhere while the device thread hangs; the other
  // services are as they were. Nothing once SetNotServing was called.
  virtual void SetDeviceHealthy(bool healthy) = 0;
  // Ends streams after what they still have to send, waits for the calls under way, health checks among them, and
  // cancels what is left after `grace`. A call whose headers come after that, before its client has read gRPC's GOAWAY,
  // is CANCELLED: gRPC 1.51's core resets each new stream from the moment that a server shuts down, without any handler
  // or interceptor, and offers no GOAWAY before that moment.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace permafrost::api
