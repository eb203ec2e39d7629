// Credentials: how an address guards itself before any handler, by TLS and the gate, and who makes a call, as audit and
// limits name callers. A call that the gate refuses reaches no service, health and reflection included; it is counted
// and, if its method changes something, audited here.
// Threads: all of it is safe anywhere.
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

// The metadata that came with a call before its messages.
using CallMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// Errors: Gate::Identify's.
absl::StatusOr<access::Caller> CallerOf(const access::Gate& gate, const grpc::ServerContextBase& context,
                                        const CallMetadata& metadata);

// Returns a check, to be asked now and then, of whether the caller of a call that goes on would still be let in. Takes
// the call as it begins.
std::function<absl::Status()> StillAdmitted(const access::Gate& gate, const grpc::ServerContextBase& context,
                                            const CallMetadata& metadata);

// Whom a limit counts a call to: the caller's name where callers are told apart, else the address that it came from, of
// other machines only. Empty: whoever reaches it is of this machine and may take all there is.
std::string ClientOf(const access::Gate& gate, const grpc::ServerContextBase& context, const CallMetadata& metadata);

}  // namespace permafrost::api
