// The gRPC server. Serves all services, health checks and reflection on one address and a unix socket, and counts
// requests. Borrows the job manager and the catalog until the server is destroyed.
// Threads: all methods are thread-safe; call Shutdown once. Handlers run on gRPC's threads. The number of these
// threads does not depend on the number of open streams. Only reflection needs a thread for each stream. Reflection
// therefore serves few clients at a time, and refuses further clients with RESOURCE_EXHAUSTED.
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

// Settings that decide who may call, and how connections are protected. All pointers are borrowed until the server is
// destroyed.
struct AccessOptions {
  // Null: every caller is an admin.
  const access::Gate* gate = nullptr;
  // Null: the RPCs about tokens are UNIMPLEMENTED.
  access::TokenStore* tokens = nullptr;
  // Null: no call is audited.
  access::AuditLog* audit = nullptr;
  // Null: connections use plain text.
  access::CertificateFiles* certificates = nullptr;
  // Path of the unix socket, whose callers are admins. Empty: there is no socket.
  std::filesystem::path socket;
  // True: serves gRPC reflection, from which clients without the proto files can get the contract.
  bool reflection = true;
};

struct ServerOptions {
  std::string address = "127.0.0.1:0";  // host:port; port 0 picks a free port
  ServerInfo info;
  // The graph cache policy of jobs whose spec gives none.
  spec::PolicyOptions default_graph_cache;
  RequestObserver observe_request;                                           // must not block
  StreamObserver observe_stream;                                             // must not block
  DroppedStateObserver observe_dropped;                                      // must not block
  std::function<DeviceState()> device_state = [] { return DeviceState(); };  // called on any thread
  std::function<void()> request_drain;                                       // see ServerService
  MakeBackup make_backup;                                                    // empty: Backup is UNIMPLEMENTED
  ClockWatch clock;
  CallLimitOptions limits;
  AccessOptions access;
  // Borrowed until the server is destroyed. Null: uploads are refused.
  data::UploadStore* uploads = nullptr;
  // Borrowed until the server is destroyed. Null: ProgramService is UNIMPLEMENTED.
  jobs::ProgramStore* programs = nullptr;
};

class Server {
 public:
  // Starts serving. Errors: FailedPrecondition, naming the address and the system's reason, if the address cannot be
  // bound. If another process serves the port or the unix socket, binding is refused, too (PrepareSocket).
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, jobs::JobManager& jobs,
                                                       data::Catalog& catalog);
  virtual ~Server() = default;  // same as Shutdown without grace

  // Returns host:port as bound.
  virtual const std::string& address() const = 0;
  // Reports to load balancers that the server and each service are not serving. Calls are still served.
  virtual void SetNotServing() = 0;
  // Sets the health of the server as a whole and of JobService, whose jobs make no progress while the device thread
  // hangs. The other services keep their health. No-op after SetNotServing.
  virtual void SetDeviceHealthy(bool healthy) = 0;
  // Ends each stream after its remaining responses. Waits for the calls in progress, including health checks, and
  // cancels calls that remain after `grace`. A call that arrives during the shutdown, before its client has read
  // gRPC's GOAWAY, ends with CANCELLED. The reason is the core of gRPC 1.51. During a shutdown it resets each new
  // stream before any handler or interceptor sees the stream, and the server cannot send a GOAWAY earlier.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace permafrost::api
