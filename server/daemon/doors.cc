#include "daemon/doors.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "access/https_exposer.h"
#include "api/guard/unix_socket.h"
#include "api/peers/grpc_peers.h"
#include "base/device.h"
#include "base/file.h"
#include "base/status.h"
#include "daemon/version.h"
#include "device/torch_version.h"
#include "telemetry/log.h"

namespace permafrost {

using telemetry::Log;
using telemetry::Severity;

namespace {

// Returns the absolute path of the unix socket; empty: there is none. With --socket auto, there is no socket if its
// path would be too long.
std::filesystem::path SocketPath(const Options& options, const std::filesystem::path& state_dir) {
  if (options.socket == "off") return {};
  if (options.socket != "auto") return std::filesystem::absolute(options.socket);
  std::filesystem::path path = state_dir / "permafrost.sock";
  if (path.string().size() <= api::MaxSocketPath()) return path;
  Log(Severity::kWarning, absl::StrCat(path.string(), ": no unix socket: the system takes paths of at most ",
                                       api::MaxSocketPath(), " bytes; name another with --socket"));
  return {};
}

}  // namespace

absl::StatusOr<Access> OpenAccess(const Options& options, const std::filesystem::path& state_dir, SeenClock& clock) {
  Access access;
  PF_ASSIGN_OR_RETURN(access.tokens,
                      access::TokenStore::Open(state_dir / "tokens.json", [&clock] { return clock.Latest(); }));
  PF_ASSIGN_OR_RETURN(access.audit, access::AuditLog::Open({.path = state_dir / "audit.jsonl"}));
  if (!options.tls.certificate.empty()) {
    auto certificates = access::CertificateFiles::Open(options.tls);
    if (!certificates.ok()) return Annotate(certificates.status(), "TLS");
    access.certificates = *std::move(certificates);
  }
  access.gate = std::make_unique<access::Gate>(
      access::GateOptions{.auth = options.auth, .certificate_role = options.tls_client_role}, access.tokens.get());
  access.socket = SocketPath(options, state_dir);
  return access;
}

absl::StatusOr<std::unique_ptr<train::Peers>> MakePeers(const Options& options, std::string instance) {
  if (options.peers.empty()) return nullptr;
  const auto read = [](const char* flag, const std::filesystem::path& file) -> absl::StatusOr<std::string> {
    if (file.empty()) return std::string();
    absl::StatusOr<std::string> text = ReadFile(file);
    if (!text.ok()) return Annotate(text.status(), flag);
    absl::StripAsciiWhitespace(&*text);
    if (text->empty()) return absl::InvalidArgumentError(absl::StrCat(flag, " ", file.string(), " is empty"));
    return text;
  };
  PF_ASSIGN_OR_RETURN(std::string token, read("--peer-token-file", options.peer_token_file));
  PF_ASSIGN_OR_RETURN(std::string authority, read("--peer-ca", options.peer_authority));
  access::CertificateContent own;
  if (!options.peer_certificate.empty()) {
    auto files = access::ReadCertificateFiles(
        {.certificate = options.peer_certificate, .key = options.peer_key, .client_authority = options.peer_authority});
    if (!files.ok()) return Annotate(files.status(), "--peer-cert, --peer-key and --peer-ca");
    if (const std::string why = access::WhyNotValid(*files, absl::Now()); !why.empty()) {
      telemetry::Log(telemetry::Severity::kWarning, absl::StrCat("the certificate ", options.peer_certificate.string(),
                                                                 " ", why, ": peers will refuse it"));
    }
    own = *std::move(files);
  }
  return api::MakeGrpcPeers({.addresses = options.peers,
                             .token = std::move(token),
                             .authority = std::move(authority),
                             .certificate = std::move(own.certificate),
                             .key = std::move(own.key),
                             .version = std::string(Version()),
                             .torch_version = device::LoadedTorchVersion(),
                             .device = std::string(kDeviceNames.Name(DeviceKind::kCpu)),
                             .instance = std::move(instance)});
}

absl::StatusOr<std::unique_ptr<telemetry::Exposer>> StartExposer(const Options& options, const Access& access,
                                                                 std::shared_ptr<prometheus::Registry> registry,
                                                                 std::function<void()> before_scrape) {
  if (access.certificates) {
    return access::StartHttpsExposer(
        {.address = options.metrics, .certificates = access.certificates.get(), .gate = access.gate.get()},
        std::move(registry), std::move(before_scrape));
  }
  std::function<bool(const std::string&)> admits;
  if (access.gate->auth() == access::Auth::kToken) {
    admits = [gate = access.gate.get()](const std::string& token) {
      const std::string authorization = absl::StrCat("Bearer ", token);
      return gate->Identify({.by_socket = false, .authorization = authorization, .subject = {}}).ok();
    };
  }
  return telemetry::Exposer::Start(options.metrics, std::move(registry), std::move(before_scrape), std::move(admits));
}

void TellAccess(const Options& options, const Access& access) {
  if (options.insecure && access.gate->auth() == access::Auth::kNone) {
    Log(Severity::kWarning, "--insecure: whoever reaches its addresses may do anything");
  }
  if (access.gate->auth() == access::Auth::kToken && access.tokens->List().empty() && !options.tls_client_role) {
    Log(Severity::kInfo, access.socket.empty()
                             ? "there is no token, and no socket to make one by: nobody may call"
                             : absl::StrCat("there is no token; make one: permafrost --server unix:",
                                            access.socket.string(), " server token create --role admin"));
  }
}

namespace {

void RefreshDatasets(const data::Catalog& catalog, telemetry::ServerMetrics& metrics) {
  const data::Catalog::Usage usage = catalog.usage();
  for (const auto& [state, name] : data::kDatasetStateNames.rows) {
    metrics.SetDatasets(name, usage.datasets[static_cast<size_t>(state)]);
  }
  metrics.SetStores("graph_set", usage.graph_sets.count, usage.graph_sets.bytes);
  metrics.SetStores("graph", usage.graphs.count, usage.graphs.bytes);
  metrics.SetMappedBytes(usage.mapped_bytes);
  metrics.SetImports("succeeded", usage.imports.succeeded);
  metrics.SetImports("failed", usage.imports.failed);
  metrics.SetImports("cancelled", usage.imports.cancelled);
  metrics.SetImportRetries(usage.imports.retried);
  metrics.SetImportQueue(usage.imports_waiting);
}

}  // namespace

void RefreshMetrics(const data::Catalog& catalog, const data::UploadStore& uploads, const DiskReserve& disk,
                    telemetry::JobMetrics& job_metrics, telemetry::ServerMetrics& server_metrics) {
  job_metrics.BeforeScrape();
  RefreshDatasets(catalog, server_metrics);
  const data::UploadAccount::Totals held = uploads.totals();
  server_metrics.SetUploads(held.received, held.counted, uploads.max_bytes());
  server_metrics.SetDisk(disk.Free(), disk.bytes());
  server_metrics.SetImportProgress(catalog.import_progress());
  server_metrics.BeforeScrape();
}

}  // namespace permafrost
