// The credentials of an address: TLS, and a hook that asks the gate about each call before any handler runs. A
// refused call reaches no service, not even health or reflection. The hook counts a refused call and, if its method
// changes something, audits it. Also identifies callers for the audit log and the limits.
// Threads: all functions and classes are thread-safe.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "access/audit_log.h"
#include "access/gate.h"
#include "access/tls.h"
#include "api/guard/call_counts.h"

namespace permafrost::api {

// The gate, and where its refusals are reported. Borrows everything for the lifetime of the server.
struct GateKeeper {
  const access::Gate* gate = nullptr;  // never null
  access::AuditLog* audit = nullptr;   // null: refused calls are not audited
  RequestObserver observe_request;     // may be empty
};

// Provides the certificates for new connections. Must outlive the server.
class CertificateSource {
 public:
  explicit CertificateSource(access::CertificateFiles& files) : files_(files) {}
  access::CertificateFiles& files() { return files_; }
  // Returns the certificates' content if it has changed since the last call; else null.
  std::shared_ptr<const access::CertificateContent> Changed();

 private:
  access::CertificateFiles& files_;
  absl::Mutex mu_;
  std::shared_ptr<const access::CertificateContent> given_ ABSL_GUARDED_BY(mu_);
};

// Plain text. If the gate asks for tokens, gRPC closes all connections except connections to loopback addresses.
std::shared_ptr<grpc::ServerCredentials> PlainCredentials(const GateKeeper& keeper);
// TLS. If there is a client authority, only clients with a valid certificate can connect.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const GateKeeper& keeper, CertificateSource& certificates);

// The metadata that came with a call, before its messages.
using CallMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// Returns the caller. Errors: those of Gate::Identify.
absl::StatusOr<access::Caller> CallerOf(const access::Gate& gate, const grpc::ServerContextBase& context,
                                        const CallMetadata& metadata);

// Returns a function that checks whether the caller of an ongoing call would still be admitted. Call StillAdmitted
// when the ongoing call begins, and the returned function from time to time.
std::function<absl::Status()> StillAdmitted(const access::Gate& gate, const grpc::ServerContextBase& context,
                                            const CallMetadata& metadata);

// Returns the client whose limits a call counts against: the caller's name if callers are identified, else the
// address of the caller's machine. Empty: the call comes from this machine without a name, and is not limited.
std::string ClientOf(const access::Gate& gate, const grpc::ServerContextBase& context, const CallMetadata& metadata);

}  // namespace permafrost::api
