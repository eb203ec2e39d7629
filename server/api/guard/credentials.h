// The guards of an address before any handler: TLS, and the gate. A call that the gate refuses reaches no service,
// health and reflection included; it is counted and, of a method that changes something, audited here.
// Threads: all of it is safe anywhere.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "access/audit_log.h"
#include "access/gate.h"
#include "access/tls.h"
#include "api/guard/request_metrics.h"

namespace permafrost::api {

// Whom the gate's refusals are told. Borrows everything for as long as the server lives.
struct GateKeeper {
  const access::Gate* gate = nullptr;  // never null
  access::AuditLog* audit = nullptr;   // null: nothing is audited
  RequestObserver observe_request;     // may be empty
};

// Serves the certificates to connections that begin. Outlives the server.
class CertificateSource {
 public:
  explicit CertificateSource(access::CertificateFiles& files) : files_(files) {}
  access::CertificateFiles& files() { return files_; }
  // Null: what was given last still holds.
  std::shared_ptr<const access::CertificateContent> Changed();

 private:
  access::CertificateFiles& files_;
  absl::Mutex mu_;
  std::shared_ptr<const access::CertificateContent> given_ ABSL_GUARDED_BY(mu_);
};

// Plain text. Where the gate asks for tokens, connections to loopback addresses only: gRPC closes others.
std::shared_ptr<grpc::ServerCredentials> PlainCredentials(const GateKeeper& keeper);
// TLS; with a client authority, of clients with a valid certificate only.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const GateKeeper& keeper, CertificateSource& certificates);

}  // namespace permafrost::api
