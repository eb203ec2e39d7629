#include "api/guard/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/version_info.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "access/gate.h"
#include "api/guard/methods.h"
#include "api/wire/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

std::string_view ViewOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// Returns the subject of the client certificate that the handshake verified.
std::string_view SubjectOf(const grpc_auth_context* context) {
  grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(context, GRPC_X509_SUBJECT_PROPERTY_NAME);
  const grpc_auth_property* property = grpc_auth_property_iterator_next(&it);
  return property == nullptr ? std::string_view() : std::string_view(property->value, property->value_length);
}

void TellRefusal(const GateKeeper& keeper, std::string_view path, const access::Presented& presented,
                 const std::string& code) {
  const Method& method = FindMethod(path);
  if (keeper.observe_request) keeper.observe_request(method.label, code, absl::ZeroDuration());
  if (keeper.audit == nullptr || !method.changes) return;
  const absl::StatusOr<access::Caller> caller = keeper.gate->Identify(presented);
  keeper.audit->Write({.caller = caller.ok() ? caller->name : "unknown",
                       .role = caller.ok() ? std::string(access::kRoleNames.Name(caller->role)) : "",
                       .peer = "",
                       .method = std::string(path.substr(1)),
                       .resource = "",
                       .code = code});
}

// gRPC calls this hook before it passes a call to a service.
void Process(void* state, grpc_auth_context* context, const grpc_metadata* metadata, size_t count,
             grpc_process_auth_metadata_done_cb done, void* call) {
  const auto& keeper = *static_cast<const GateKeeper*>(state);
  std::string_view path;
  // A repeated `authorization` header is refused, because the gate and the audit might read different ones.
  int times_given = 0;
  access::Presented presented{.by_socket = false, .authorization = {}, .subject = SubjectOf(context)};
  for (size_t i = 0; i < count; ++i) {
    const std::string_view key = ViewOf(metadata[i].key);
    if (key == ":path") path = ViewOf(metadata[i].value);
    if (key != "authorization") continue;
    ++times_given;
    presented.authorization = ViewOf(metadata[i].value);
  }
  const absl::Status admitted =
      times_given <= 1
          ? keeper.gate->Admit(path, FindMethod(path).least_role, presented).status()
          : absl::UnauthenticatedError("authorization is given more than once; accepted: one `Bearer TOKEN`");
  if (!admitted.ok()) {
    TellRefusal(keeper, path, presented, StatusCodeName(static_cast<grpc::StatusCode>(admitted.raw_code())));
  }
  done(call, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(admitted.raw_code()),
       admitted.ok() ? nullptr : std::string(admitted.message()).c_str());
}

grpc_ssl_certificate_config_reload_status FetchCertificates(void* state, grpc_ssl_server_certificate_config** config) {
  const auto changed = static_cast<CertificateSource*>(state)->Changed();
  if (!changed) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {.private_key = changed->key.c_str(),
                                           .cert_chain = changed->certificate.c_str()};
  // Even if no client certificate is requested, gRPC requires some authority, which it then ignores.
  const std::string& authority = changed->client_authority.empty() ? changed->certificate : changed->client_authority;
  *config = grpc_ssl_server_certificate_config_create(authority.c_str(), &pair, /*num_key_cert_pairs=*/1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

// Owns `credentials`. Uses gRPC's C interface, because gRPC's C++ classes cannot provide certificates at each
// handshake, and copy a call's metadata before their hook sees the call.
class CoreCredentials final : public grpc::ServerCredentials {
 public:
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 57
  explicit CoreCredentials(grpc_server_credentials* credentials) : credentials_(credentials) {}
  ~CoreCredentials() override { grpc_server_credentials_release(credentials_); }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }
  grpc_server_credentials* const credentials_;
#else
  explicit CoreCredentials(grpc_server_credentials* credentials) : grpc::ServerCredentials(credentials) {}
#endif

 public:
  // No-op: the hook of the gate is the only processor.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}
};

std::shared_ptr<grpc::ServerCredentials> WithGate(grpc_server_credentials* credentials, const GateKeeper& keeper) {
  grpc_server_credentials_set_auth_metadata_processor(
      credentials, {.process = Process,
                    .destroy = [](void* state) { delete static_cast<GateKeeper*>(state); },
                    .state = new GateKeeper(keeper)});
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): gRPC destroys the processor's state
  return std::make_shared<CoreCredentials>(credentials);
}

bool CameBySocket(absl::string_view peer) { return absl::StartsWith(peer, "unix"); }

// Returns the machine of a peer: "ipv4:10.0.0.7:41234" -> "ipv4:10.0.0.7", "ipv6:%5Bfd00::7%5D:41234" ->
// "ipv6:%5Bfd00::7%5D". Returns an empty text if the peer is on this machine.
std::string MachineOf(absl::string_view peer) {
  const absl::string_view machine = peer.substr(0, peer.rfind(':'));
  const bool own = CameBySocket(peer) || absl::StartsWith(machine, "ipv4:127.") ||
                   absl::StrContains(machine, "[::1]") || absl::StrContains(machine, "%5B::1%5D");
  return own ? "" : std::string(machine);
}

// A copy of the credentials that came with a call, kept as long as the call lasts.
struct Brought {
  bool by_socket = false;
  std::string authorization, subject;
  access::Presented presented() const {
    return {.by_socket = by_socket, .authorization = authorization, .subject = subject};
  }
};

Brought BroughtBy(const grpc::ServerContextBase& context, const CallMetadata& metadata) {
  Brought brought{.by_socket = CameBySocket(context.peer()), .authorization = {}, .subject = {}};
  if (const auto it = metadata.find("authorization"); it != metadata.end()) {
    brought.authorization.assign(it->second.data(), it->second.size());
  }
  if (const auto security = context.auth_context(); security != nullptr) {
    const auto subjects = security->FindPropertyValues("x509_subject");
    if (!subjects.empty()) brought.subject.assign(subjects[0].data(), subjects[0].size());
  }
  return brought;
}

}  // namespace

std::shared_ptr<const access::CertificateContent> CertificateSource::Changed() {
  const absl::MutexLock lock(&mu_);
  auto current = files_.Current();
  if (current == given_) return nullptr;
  given_ = std::move(current);
  return given_;
}

std::shared_ptr<grpc::ServerCredentials> PlainCredentials(const GateKeeper& keeper) {
  // Without authentication, the hook would have nothing to check. Also, gRPC's insecure credentials accept no hook.
  if (keeper.gate->auth() == access::Auth::kNone) return grpc::InsecureServerCredentials();
  return WithGate(grpc_local_server_credentials_create(LOCAL_TCP), keeper);
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const GateKeeper& keeper, CertificateSource& certificates) {
  const bool asks = !certificates.files().files().client_authority.empty();
  return WithGate(
      grpc_ssl_server_credentials_create_with_options(grpc_ssl_server_credentials_create_options_using_config_fetcher(
          asks ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
          FetchCertificates, &certificates)),
      keeper);
}

absl::StatusOr<access::Caller> CallerOf(const access::Gate& gate, const grpc::ServerContextBase& context,
                                        const CallMetadata& metadata) {
  return gate.Identify(BroughtBy(context, metadata).presented());
}

std::function<absl::Status()> StillAdmitted(const access::Gate& gate, const grpc::ServerContextBase& context,
                                            const CallMetadata& metadata) {
  if (gate.auth() == access::Auth::kNone) return [] { return absl::OkStatus(); };
  Brought brought = BroughtBy(context, metadata);
  const absl::StatusOr<access::Caller> caller = gate.Identify(brought.presented());
  // If the token was revoked since the call was admitted, the first check ends the call.
  access::Caller admitted = caller.ok() ? *caller : access::Caller();
  return [&gate, brought = std::move(brought), admitted = std::move(admitted)] {
    return gate.CheckStill(admitted, brought.presented());
  };
}

std::string ClientOf(const access::Gate& gate, const grpc::ServerContextBase& context, const CallMetadata& metadata) {
  if (gate.auth() == access::Auth::kNone) return MachineOf(context.peer());
  const absl::StatusOr<access::Caller> caller = CallerOf(gate, context, metadata);
  return caller.ok() ? caller->name : MachineOf(context.peer());
}

}  // namespace permafrost::api
